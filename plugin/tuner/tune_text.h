/* SPDX-License-Identifier: Apache-2.0 */
/* For the parser of tune files alone (tune_table.c, tune_site.c): lines, words, numbers, and messages
 * that name the line and say what was expected. Nothing is copied. */
#ifndef SLR_PLUGIN_TUNER_TUNE_TEXT_H
#define SLR_PLUGIN_TUNER_TUNE_TEXT_H

#include "plugin/tuner/tune_table.h"

/* A part of the text, which is not copied and has no final 0. */
struct slr_tune_word {
    const char *at;
    size_t len;
};

struct slr_tune_line {
    const char *at, *end; /* what is left of it */
    int number;
    struct slr_tune_error *error;
    unsigned seen; /* keys, one bit each */
};

/* A key of KEY=VALUE. */
struct slr_tune_key {
    const char *name;
    bool chosen; /* it stands behind the colon */
};

/* Fills the line's error; -EINVAL. */
int slr_tune_broken(struct slr_tune_line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* For messages, "%.*s": the beginning of a long word. */
#define SLR_TUNE_SHOWN(w) (int)((w).len < 40 ? (w).len : 40), (w).at

/* Carriage returns too: files come from all systems. Lines are split at the newline before this. */
static inline bool slr_tune_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* The next word; the colon is one of its own. len 0: none left, also before a comment. */
struct slr_tune_word slr_tune_next_word(struct slr_tune_line *l);

/* In any letter case. */
bool slr_tune_same(struct slr_tune_word w, const char *text);

/* A whole number, `sized` with K, M, G or T. False: it is none, or too large. */
bool slr_tune_number(struct slr_tune_word w, bool sized, uint64_t *out);

/* N, LOW..HIGH, LOW.., ..HIGH or any; slr_tune_set_range reports what is none. */
bool slr_tune_read_range(struct slr_tune_word w, bool sized, struct slr_tune_range *out);
int slr_tune_set_range(struct slr_tune_line *l, const char *key, bool sized, struct slr_tune_range *out,
                       struct slr_tune_word value);

/* The pairs KEY=VALUE up to the colon and behind it; `set` gets each with its key's index. 0, or
 * -EINVAL: a key that is not of `keys`, stands on the wrong side, or comes twice; two colons or none;
 * no pair behind it; or what `set` has returned. */
int slr_tune_pairs(struct slr_tune_line *l, const struct slr_tune_key *keys, int count, void *rule,
                   int (*set)(struct slr_tune_line *l, void *rule, int key, struct slr_tune_word value));

/* Behind the word `site`. */
int slr_tune_site_parse(struct slr_tune_line *l, struct slr_tune_site *rule);

#endif
