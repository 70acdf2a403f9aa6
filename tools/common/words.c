/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/words.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/common/vec.h"

/* The list takes the word. */
static void take(struct words *w, char *word)
{
    w->word = tool_checked(reallocarray(w->word, w->count + 2, sizeof *w->word));
    w->word[w->count++] = word;
    w->word[w->count] = NULL;
}

void words_add(struct words *w, const char *word)
{
    take(w, tool_copy(word));
}

void words_addf(struct words *w, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    take(w, tool_vtext(fmt, args));
    va_end(args);
}

void words_add_all(struct words *w, char *const *words)
{
    for (; words && *words; words++)
        words_add(w, *words);
}

/* One word into `out`, which is as long as the text; where it ends, or NULL when a quote is
 * open. */
static const char *take_word(const char *at, char *out)
{
    char quote = 0;
    for (; *at && (quote || !strchr(" \t\n", *at)); at++) {
        if (!quote && (*at == '\'' || *at == '"'))
            quote = *at;
        else if (*at == quote)
            quote = 0;
        else if (*at == '\\' && at[1] && (!quote || (quote == '"' && strchr("\\\"", at[1]))))
            *out++ = *++at;
        else
            *out++ = *at;
    }
    *out = '\0';
    return quote ? NULL : at;
}

bool words_split(struct words *w, const char *text)
{
    char *word = tool_alloc(strlen(text) + 1, 1);
    text += strspn(text, " \t\n");
    while (text && *text) {
        text = take_word(text, word);
        if (text) {
            words_add(w, word);
            text += strspn(text, " \t\n");
        }
    }
    free(word);
    return text != NULL;
}

static void quoted(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
    if (*word && !word[strspn(word, plain)]) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\"'\"'", out);
        else
            fputc(*word, out);
    fputc('\'', out);
}

char *words_join(const struct words *w)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = tool_checked(open_memstream(&text, &size));
    for (size_t i = 0; i < w->count; i++) {
        if (i)
            fputc(' ', out);
        quoted(out, w->word[i]);
    }
    fclose(out);
    return tool_checked(text);
}

void words_free(struct words *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->word[i]);
    free(w->word);
    *w = (struct words){NULL, 0};
}
