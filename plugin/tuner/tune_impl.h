/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder tuner/ alone: how the text of tune files is read, added to and replaced. */
#ifndef SLR_PLUGIN_TUNER_TUNE_IMPL_H
#define SLR_PLUGIN_TUNER_TUNE_IMPL_H

#include <sys/types.h>
#include "plugin/tuner/tune_table.h"

/* ---- tune_site.c: lines, words, numbers, and messages that name the line and say what was expected; nothing is
 * copied ---- */

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
    bool chosen;                                           /* it stands behind the colon */
    bool (*read)(struct slr_tune_word value, void *field); /* false: it is none of what is expected */
    size_t field;                                          /* in the rule */
    const char *expected;
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

/* Of a struct slr_tune_range: N, LOW..HIGH, LOW.., ..HIGH or any; of sizes. */
bool slr_tune_read_range(struct slr_tune_word value, void *field);
bool slr_tune_read_sizes(struct slr_tune_word value, void *field);
#define SLR_TUNE_RANGE_EXPECTED "any, a whole number, or LOW..HIGH with LOW not above HIGH"
#define SLR_TUNE_SIZES_EXPECTED "any, a size such as 64K, 1M or 2G, or LOW..HIGH with LOW not above HIGH"

/* The pairs KEY=VALUE up to the colon and behind it, into the rule. 0, or -EINVAL: a key that is not of `keys`, stands
 * on the wrong side, or comes twice; a value that is not what is expected; two colons or none; no pair behind it. */
int slr_tune_pairs(struct slr_tune_line *l, const struct slr_tune_key *keys, int count, void *rule);

/* Behind the word `site`. */
int slr_tune_site_parse(struct slr_tune_line *l, struct slr_tune_site *rule);

/* Up to `size` bytes. -1: errno says why. */
ssize_t slr_tune_read_whole(int fd, char *buf, size_t size);

/* ---- tune_write.c ---- */

/* Adds the rules (slr_tune_merge). 0; -EAGAIN: another process is at it, nothing has been waited for; or
 * another negative errno value with `error` filled: the file is as it was. */
int slr_tune_write(const char *path, const struct slr_tune_site *rules, size_t count, struct slr_tune_error *error);

/* Its text with more rules for call sites.
 *
 * A rule that the library has written ends with the comment "# kept by slipring". Only such lines are ever taken out;
 * every other line stays as it is, and in its place. New rules come at the end. A rule is taken out
 *
 *   - when a new one has the same conditions, or has the same but for the consumer and chose the other one of ring and
 *     NCCL, which holds for all gathers of a site;
 *   - as the oldest, the topmost, when there are more than SLR_TUNE_MOST_KEPT, or more rules or bytes than a file may
 *     have. */

#define SLR_TUNE_MOST_KEPT 1024u

/* *out is to be freed by the caller. 0, or a negative errno value with `error` filled and *out NULL:
 * the text is broken, or there is no room. */
int slr_tune_merge(const char *text, size_t len, const struct slr_tune_site *rules, size_t count, char **out,
                   size_t *out_len, struct slr_tune_error *error);

#endif
