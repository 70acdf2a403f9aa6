/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of tune files and the search in a table. Nothing is copied, and every message names
 * its line and says what was expected. */
#include "plugin/tuner/tune_table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mix.h"
#include "plugin/util/nccl_names.h"

/* A part of the text, which is not copied and has no final 0. */
struct word {
    const char *at;
    size_t len;
};

struct line {
    const char *at, *end; /* what is left of it */
    int number;
    struct slr_tune_error *error;
    unsigned seen; /* keys, one bit each */
};

enum key { KEY_BYTES, KEY_RANKS, KEY_NODES, KEY_REGISTERED, KEY_ALGORITHM, KEY_PROTOCOL, KEY_CHANNELS, KEYS };
#define CONDITIONS KEY_ALGORITHM /* the keys before it stand before the colon */
static const char *const key_names[KEYS] = {"bytes",     "ranks",    "nodes",   "registered",
                                            "algorithm", "protocol", "channels"};

__attribute__((format(printf, 2, 3))) static int broken(struct line *l, const char *fmt, ...)
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

/* For messages: the beginning of a long word. */
#define SHOWN(w) (int)((w).len < 40 ? (w).len : 40), (w).at

/* Carriage returns too: files come from all systems. Lines are split at the newline before this. */
static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* The next word; the colon is one of its own. len 0: none left. */
static struct word next_word(struct line *l)
{
    while (l->at < l->end && is_space(*l->at))
        l->at++;
    struct word w = {l->at, 0};
    if (l->at < l->end && *l->at == '#') /* a comment ends the line */
        l->at = l->end;
    else if (l->at < l->end && *l->at == ':')
        l->at++, w.len = 1;
    else
        while (l->at < l->end && !is_space(*l->at) && *l->at != ':' && *l->at != '#')
            l->at++, w.len++;
    return w;
}

static bool same(struct word w, const char *text)
{
    return strlen(text) == w.len && !strncasecmp(w.at, text, w.len);
}

/* A whole number, for bytes with K, M, G or T. */
static bool number(struct word w, bool sized, uint64_t *out)
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

static bool range(struct word w, bool sized, struct slr_tune_range *out)
{
    *out = (struct slr_tune_range){0, UINT64_MAX};
    if (same(w, "any"))
        return true;
    const char *dots = memmem(w.at, w.len, "..", 2);
    if (!dots) {
        bool good = number(w, sized, &out->low);
        out->high = out->low;
        return good;
    }
    /* Either end may be missing, but not both. */
    struct word low = {w.at, (size_t)(dots - w.at)}, high = {dots + 2, w.len - low.len - 2};
    return (low.len || high.len) && (!low.len || number(low, sized, &out->low)) &&
           (!high.len || number(high, sized, &out->high)) && out->low <= out->high;
}

static int set_registered(struct line *l, struct slr_tune_rule *r, struct word value)
{
    if (!same(value, "yes") && !same(value, "no") && !same(value, "any"))
        return broken(l, "registered=%.*s: expected yes, no or any", SHOWN(value));
    r->registered = same(value, "any") ? -1 : same(value, "yes");
    return 0;
}

static int set_channels(struct line *l, struct slr_tune_rule *r, struct word value)
{
    uint64_t n = 0;
    if (same(value, "default"))
        return 0;
    if (!number(value, false, &n) || n < 1 || n > SLR_NCCL_MAX_CHANNELS)
        return broken(l, "channels=%.*s: expected default or a whole number from 1 to %d", SHOWN(value),
                      SLR_NCCL_MAX_CHANNELS);
    r->channels = (int)n;
    return 0;
}

static int set_range(struct line *l, enum key key, struct slr_tune_range *out, struct word value)
{
    if (range(value, key == KEY_BYTES, out))
        return 0;
    return broken(l, "%s=%.*s: expected any, a %s, or LOW..HIGH with LOW not above HIGH", key_names[key], SHOWN(value),
                  key == KEY_BYTES ? "size such as 64K, 1M or 2G" : "whole number");
}

/* One KEY=VALUE into the rule. */
static int set(struct line *l, struct slr_tune_rule *r, enum key key, struct word value)
{
    switch (key) {
    case KEY_BYTES:
        return set_range(l, key, &r->bytes, value);
    case KEY_RANKS:
        return set_range(l, key, &r->ranks, value);
    case KEY_NODES:
        return set_range(l, key, &r->nodes, value);
    case KEY_REGISTERED:
        return set_registered(l, r, value);
    case KEY_ALGORITHM:
        r->algo = slr_tune_algo_number(value.at, value.len);
        return r->algo >= -1 ? 0
                             : broken(l,
                                      "algorithm=%.*s: expected default, tree, ring, collnetdirect, collnetchain, "
                                      "nvls, nvlstree or pat",
                                      SHOWN(value));
    case KEY_PROTOCOL:
        r->proto = slr_tune_proto_number(value.at, value.len);
        return r->proto >= -1 ? 0 : broken(l, "protocol=%.*s: expected default, ll, ll128 or simple", SHOWN(value));
    case KEY_CHANNELS:
        return set_channels(l, r, value);
    case KEYS:
        break;
    }
    return 0;
}

/* KEY=VALUE, of the keys first..last-1. */
static int parse_pair(struct line *l, struct slr_tune_rule *r, struct word w, enum key first, enum key last)
{
    const char *equals = memchr(w.at, '=', w.len);
    struct word name = {w.at, equals ? (size_t)(equals - w.at) : w.len};
    enum key key = first;
    while (key < last && !same(name, key_names[key]))
        key++;
    if (key == last || !equals)
        return broken(l, "\"%.*s\": expected %s", SHOWN(w),
                      first ? "algorithm=, protocol= or channels=, or the end of the line"
                            : "bytes=, ranks=, nodes= or registered=, or a colon before what is chosen");
    if (l->seen & 1u << key)
        return broken(l, "%s is given twice: expected once", key_names[key]);
    l->seen |= 1u << key;
    return set(l, r, key, (struct word){equals + 1, w.len - name.len - 1});
}

/* All pairs up to the colon or the end, whose word is left in *stop. */
static int parse_pairs(struct line *l, struct slr_tune_rule *r, enum key first, enum key last, struct word *stop)
{
    for (;;) {
        struct word w = next_word(l);
        *stop = w;
        if (w.len == 0 || (w.len == 1 && *w.at == ':'))
            return 0;
        int rc = parse_pair(l, r, w, first, last);
        if (rc)
            return rc;
    }
}

static int parse_rule(struct line *l, struct slr_tune_rule *r, struct word func)
{
    struct word stop;
    *r = (struct slr_tune_rule){.line = l->number,
                                .registered = -1,
                                .bytes = {0, UINT64_MAX},
                                .ranks = {0, UINT64_MAX},
                                .nodes = {0, UINT64_MAX},
                                .algo = -1,
                                .proto = -1};
    r->func = slr_tune_func_number(func.at, func.len);
    if (r->func < -1)
        return broken(l, "\"%.*s\": expected allgather, allreduce, broadcast, reduce, reducescatter or any",
                      SHOWN(func));
    int rc = parse_pairs(l, r, 0, CONDITIONS, &stop);
    if (rc)
        return rc;
    if (stop.len == 0)
        return broken(l, "the line ends without a colon: expected \"COLLECTIVE conditions : choices\"");
    rc = parse_pairs(l, r, CONDITIONS, KEYS, &stop);
    if (rc)
        return rc;
    if (stop.len)
        return broken(l, "a second colon: expected one, between conditions and choices");
    if (!(l->seen >> CONDITIONS))
        return broken(l, "nothing is chosen: expected algorithm=, protocol= or channels= after the colon (each may be "
                         "default)");
    if (r->channels && (r->algo == SLR_NCCL_COLLNET_DIRECT || r->algo == SLR_NCCL_COLLNET_CHAIN))
        return broken(l,
                      "channels=%d with a CollNet algorithm: expected channels=default, NCCL does not bound them there",
                      r->channels);
    return 0;
}

static int add_rule(struct slr_tune_table *t, struct line *l, const struct slr_tune_rule *r)
{
    if (t->count == SLR_TUNE_MAX_RULES)
        return broken(l, "one rule too many: expected at most %u", SLR_TUNE_MAX_RULES);
    if (t->count == t->room) {
        size_t room = t->room ? 2 * t->room : 16;
        struct slr_tune_rule *more = realloc(t->rule, room * sizeof *more);
        if (!more)
            /* Not the fault of the line, which only the message names. */
            return broken(l, "no memory for the rules"), -ENOMEM;
        t->rule = more;
        t->room = room;
    }
    t->rule[t->count++] = *r;
    return 0;
}

/* Of what the rules say, so that tables that differ in comments only count as equal. Part of
 * what ranks compare. Begins with "tune" in ASCII; never 0, which says that there is no table
 * (tune_state.c). */
static uint64_t digest(const struct slr_tune_table *t)
{
    uint64_t d = slr_mix(0x74756e65, t->count);
    for (size_t i = 0; i < t->count; i++) {
        const struct slr_tune_rule *r = &t->rule[i];
        const uint64_t word[] = {(uint64_t)(r->func + 1) << 32 | (uint64_t)(r->registered + 1),
                                 r->bytes.low,
                                 r->bytes.high,
                                 r->ranks.low,
                                 r->ranks.high,
                                 r->nodes.low,
                                 r->nodes.high,
                                 (uint64_t)(r->algo + 1) << 32 | (uint64_t)(r->proto + 1) << 16 |
                                     (uint64_t)r->channels};
        for (size_t k = 0; k < sizeof word / sizeof *word; k++)
            d = slr_mix(d, word[k]);
    }
    return d ? d : 1;
}

static int parse_line(struct slr_tune_table *t, struct line *l)
{
    struct slr_tune_rule rule;
    size_t len = (size_t)(l->end - l->at);
    if (len > SLR_TUNE_MAX_LINE)
        return broken(l, "a line of %zu bytes: expected at most %u", len, SLR_TUNE_MAX_LINE);
    /* A binary file is refused at its first line, not quoted. */
    for (const char *p = l->at; p < l->end; p++)
        if ((unsigned char)*p < 0x20 && !is_space(*p))
            return broken(l, "a byte of value %d: expected text", (unsigned char)*p);
    struct word first = next_word(l);
    if (!first.len)
        return 0;
    int rc = parse_rule(l, &rule, first);
    return rc ? rc : add_rule(t, l, &rule);
}

int slr_tune_parse(struct slr_tune_table *table, const char *text, size_t len, struct slr_tune_error *error)
{
    const char *at = text, *end = text + len;
    int rc = 0;
    *table = (struct slr_tune_table){0};
    *error = (struct slr_tune_error){0};
    for (int n = 1; at < end && !rc; n++) {
        /* The last line needs no newline. */
        const char *feed = memchr(at, '\n', (size_t)(end - at));
        struct line l = {.at = at, .end = feed ? feed : end, .number = n, .error = error};
        at = feed ? feed + 1 : end;
        rc = parse_line(table, &l);
    }
    if (rc) /* whole or not at all */
        slr_tune_free(table);
    else
        table->digest = digest(table);
    return rc;
}

void slr_tune_free(struct slr_tune_table *table)
{
    free(table->rule);
    *table = (struct slr_tune_table){0};
}

static bool in(const struct slr_tune_range *r, uint64_t n)
{
    return n >= r->low && n <= r->high;
}

const struct slr_tune_rule *slr_tune_find(const struct slr_tune_table *table, const struct slr_tune_call *call)
{
    /* In their order, which is the user's priority; a table has a few rules, so no index is
     * kept. */
    for (size_t i = 0; i < table->count; i++) {
        const struct slr_tune_rule *r = &table->rule[i];
        if ((r->func == -1 || r->func == call->func) && (r->registered == -1 || r->registered == call->registered) &&
            in(&r->bytes, call->bytes) && in(&r->ranks, call->ranks) && in(&r->nodes, call->nodes))
            return r;
    }
    return NULL;
}
