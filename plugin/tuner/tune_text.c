/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/tuner/tune_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

int slr_tune_broken(struct slr_tune_line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    l->error->line = l->number;
    vsnprintf(l->error->text, sizeof l->error->text, fmt, ap);
    va_end(ap);
    /* It goes to terminals, and what is quoted may be anything. */
    for (char *c = l->error->text; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
            *c = '?';
    return -EINVAL;
}

struct slr_tune_word slr_tune_next_word(struct slr_tune_line *l)
{
    while (l->at < l->end && slr_tune_is_space(*l->at))
        l->at++;
    struct slr_tune_word w = {l->at, 0};
    if (l->at < l->end && *l->at == '#') /* a comment ends the line */
        l->at = l->end;
    else if (l->at < l->end && *l->at == ':')
        l->at++, w.len = 1;
    else
        while (l->at < l->end && !slr_tune_is_space(*l->at) && *l->at != ':' && *l->at != '#')
            l->at++, w.len++;
    return w;
}

bool slr_tune_same(struct slr_tune_word w, const char *text)
{
    return strlen(text) == w.len && !strncasecmp(w.at, text, w.len);
}

bool slr_tune_number(struct slr_tune_word w, bool sized, uint64_t *out)
{
    uint64_t n = 0;
    size_t i = 0;
    /* Too large is refused: wrapped, it would fit other calls. */
    for (; i < w.len && w.at[i] >= '0' && w.at[i] <= '9'; i++)
        if (__builtin_mul_overflow(n, 10u, &n) || __builtin_add_overflow(n, (uint64_t)(w.at[i] - '0'), &n))
            return false;
    if (i == 0)
        return false;
    if (sized && i + 1 == w.len) {
        /* K is 2^10, M 2^20, ...; `& ~0x20` makes a small letter a capital. */
        const char *letters = "KMGT", *letter = memchr(letters, w.at[i] & ~0x20, 4);
        if (!letter || n > UINT64_MAX >> (10 * (letter - letters + 1)))
            return false;
        n <<= 10 * (letter - letters + 1);
        i++;
    }
    *out = n;
    return i == w.len;
}

static bool read_range(struct slr_tune_word w, bool sized, struct slr_tune_range *out)
{
    *out = (struct slr_tune_range){0, UINT64_MAX};
    if (slr_tune_same(w, "any"))
        return true;
    const char *dots = memmem(w.at, w.len, "..", 2);
    if (!dots) {
        bool good = slr_tune_number(w, sized, &out->low);
        out->high = out->low;
        return good;
    }
    /* Either end may be missing, but not both. */
    struct slr_tune_word low = {w.at, (size_t)(dots - w.at)}, high = {dots + 2, w.len - low.len - 2};
    return (low.len || high.len) && (!low.len || slr_tune_number(low, sized, &out->low)) &&
           (!high.len || slr_tune_number(high, sized, &out->high)) && out->low <= out->high;
}

int slr_tune_set_range(struct slr_tune_line *l, const char *key, bool sized, struct slr_tune_range *out,
                       struct slr_tune_word value)
{
    if (read_range(value, sized, out))
        return 0;
    return slr_tune_broken(l, "%s=%.*s: expected any, a %s, or LOW..HIGH with LOW not above HIGH", key,
                           SLR_TUNE_SHOWN(value), sized ? "size such as 64K, 1M or 2G" : "whole number");
}

/* "bytes=, ranks= or nodes=": those that stand before the colon, or behind it. */
static const char *list_keys(const struct slr_tune_key *keys, int count, bool chosen, char *buf, size_t size)
{
    size_t at = 0;
    int left = 0;
    for (int i = 0; i < count; i++)
        left += keys[i].chosen == chosen;
    for (int i = 0; i < count && at < size; i++)
        if (keys[i].chosen == chosen)
            at += (size_t)snprintf(buf + at, size - at, "%s=%s", keys[i].name,
                                   --left > 1  ? ", "
                                   : left == 1 ? " or "
                                               : "");
    return buf;
}

static int strange_key(struct slr_tune_line *l, const struct slr_tune_key *keys, int count, bool chosen,
                       struct slr_tune_word w)
{
    char names[160];
    return slr_tune_broken(l, "\"%.*s\": expected %s, or %s", SLR_TUNE_SHOWN(w),
                           list_keys(keys, count, chosen, names, sizeof names),
                           chosen ? "the end of the line" : "a colon before what is chosen");
}

int slr_tune_pairs(struct slr_tune_line *l, const struct slr_tune_key *keys, int count, void *rule,
                   int (*set)(struct slr_tune_line *l, void *rule, int key, struct slr_tune_word value))
{
    bool chosen = false, nothing = true;
    for (struct slr_tune_word w = slr_tune_next_word(l); w.len; w = slr_tune_next_word(l)) {
        if (w.len == 1 && *w.at == ':') {
            if (chosen)
                return slr_tune_broken(l, "a second colon: expected one, between conditions and choices");
            chosen = true;
            continue;
        }
        const char *equals = memchr(w.at, '=', w.len);
        struct slr_tune_word name = {w.at, equals ? (size_t)(equals - w.at) : w.len};
        int key = 0;
        while (key < count && (keys[key].chosen != chosen || !slr_tune_same(name, keys[key].name)))
            key++;
        if (key == count || !equals)
            return strange_key(l, keys, count, chosen, w);
        if (l->seen & 1u << key)
            return slr_tune_broken(l, "%s is given twice: expected once", keys[key].name);
        l->seen |= 1u << key;
        nothing &= !chosen;
        int rc = set(l, rule, key, (struct slr_tune_word){equals + 1, w.len - name.len - 1});
        if (rc)
            return rc;
    }
    char names[160];
    if (!chosen)
        return slr_tune_broken(l, "the line ends without a colon: expected \"KIND conditions : choices\"");
    return nothing ? slr_tune_broken(l, "nothing is chosen: expected %s after the colon",
                                     list_keys(keys, count, true, names, sizeof names))
                   : 0;
}
