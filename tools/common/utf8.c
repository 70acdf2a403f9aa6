/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/utf8.h"
#include <stdbool.h>
#include <string.h>

static bool continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* By the first byte: 0xc0 and 0xc1 only begin overlong forms, 0xf5 and above lie behind
 * U+10FFFF. */
static unsigned announced(unsigned char c)
{
    return c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
}

unsigned utf8_length(const char *at)
{
    const unsigned char *c = (const unsigned char *)at;
    unsigned n = announced(*c);
    for (unsigned i = 1; i < n; i++)
        if (!continues(at[i]))
            return 0;
    bool overlong = (*c == 0xe0 && c[1] < 0xa0) || (*c == 0xf0 && c[1] < 0x90);
    bool surrogate = *c == 0xed && c[1] > 0x9f, beyond = *c == 0xf4 && c[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : n;
}

unsigned utf8_printable(const char *at)
{
    const unsigned char *c = (const unsigned char *)at;
    if (*c < ' ' || *c == 0x7f || (*c == 0xc2 && c[1] < 0xa0)) /* the last: U+0080 to U+009F */
        return 0;
    return utf8_length(at);
}

size_t utf8_step(const char *at)
{
    size_t n = *at != '\0';
    while (continues(at[n]))
        n++;
    return n;
}

size_t utf8_count(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += !continues(*text);
    return n;
}

size_t utf8_prefix(const char *text, size_t count)
{
    size_t n = 0;
    for (; count && text[n]; count--)
        n += utf8_step(text + n);
    return n;
}

void utf8_wrap(FILE *to, const char *text, size_t indent, size_t column, size_t width)
{
    for (bool first = true; *text; first = false) {
        int bytes = (int)strcspn(text, " ");
        size_t word = utf8_count(text) - utf8_count(text + bytes);
        if (!first && column + 1 + word > width) {
            fprintf(to, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', to);
            column++;
        }
        fprintf(to, "%.*s", bytes, text);
        column += word;
        text += bytes;
        text += strspn(text, " ");
    }
    fputc('\n', to);
}
