/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of words, as command lines are. Out of memory ends the tool, as in vec.h. */
#ifndef SLR_TOOLS_WORDS_H
#define SLR_TOOLS_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* NULL-terminated once there is a word; all zero is empty. Words are owned. */
struct words {
    char **word;
    size_t count;
};

void words_add(struct words *w, const char *word);
void words_addf(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* All of a NULL-terminated list; NULL: none. */
void words_add_all(struct words *w, char *const *words);
/* Splits as a shell does: blanks, '...', "...", \. False: a quote is not closed. */
bool words_split(struct words *w, const char *text);
/* The words as a shell would take them; to be freed. */
char *words_join(const struct words *w);
void words_free(struct words *w);

#endif
