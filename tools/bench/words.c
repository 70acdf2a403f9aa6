#include <stdlib.h>
#include <string.h>
#include "tools/bench/bench.h"

static void *need(void *p)
{
    if (!p) {
        fputs("slipring bench: no memory\n", stderr);
        exit(BENCH_ERROR);
    }
    return p;
}

void words_add(struct words *w, const char *word)
{
    w->word = need(realloc(w->word, (w->count + 2) * sizeof *w->word));
    w->word[w->count++] = need(strdup(word));
    w->word[w->count] = NULL;
}

void words_add_all(struct words *w, char *const *words)
{
    for (; words && *words; words++)
        words_add(w, *words);
}

/* One word into `out`, which is as long as the text; where it ends, or NULL when a quote is open. */
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
    char *word = need(malloc(strlen(text) + 1));
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
    FILE *out = need(open_memstream(&text, &size));
    for (size_t i = 0; i < w->count; i++) {
        if (i)
            fputc(' ', out);
        quoted(out, w->word[i]);
    }
    fclose(out);
    return need(text);
}

void words_free(struct words *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->word[i]);
    free(w->word);
    *w = (struct words){NULL, 0};
}
