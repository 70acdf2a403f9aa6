/* SPDX-License-Identifier: Apache-2.0 */
/* Which candidate is best for each key. Samples are sorted by key, candidate, rank and time, so
 * that everything is a run of neighbours. */
#include <stdlib.h>
#include <string.h>
#include "tools/tune/tune.h"

static int order(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* Of the key: both by collective, ranks, nodes, registration and size, so that rules that can be
 * one are neighbours. */
static int by_key(const struct sample *a, const struct sample *b)
{
    int c = a->func - b->func;
    c = c ? c : a->nranks - b->nranks;
    c = c ? c : a->nnodes - b->nnodes;
    c = c ? c : a->registered - b->registered;
    return c ? c : a->size_class - b->size_class;
}

static int by_candidate(const struct sample *a, const struct sample *b)
{
    int c = a->algo - b->algo;
    c = c ? c : a->proto - b->proto;
    return c ? c : a->channels - b->channels;
}

static int by_all(const void *pa, const void *pb)
{
    const struct sample *a = pa, *b = pb;
    int c = by_key(a, b);
    c = c ? c : by_candidate(a, b);
    c = c ? c : order(a->rank, b->rank);
    return c ? c : order(a->ns, b->ns);
}

static int by_rank(const void *pa, const void *pb)
{
    const struct sample *a = pa, *b = pb;
    int c = order(a->comm, b->comm);
    return c ? c : order(a->rank, b->rank);
}

/* The samples of one candidate. */
struct candidate {
    size_t ranks, fewest; /* how many ranks there are, and samples on the one with the fewest */
    uint64_t slowest;     /* the largest of the ranks' medians */
};

static struct candidate weigh(const struct sample *s, size_t n)
{
    struct candidate c = {0, n, 0};
    for (size_t at = 0, len; at < n; at += len) {
        len = 1;
        while (at + len < n && s[at + len].rank == s[at].rank)
            len++;
        uint64_t median = s[at + (len - 1) / 2].ns;
        c.slowest = median > c.slowest ? median : c.slowest;
        c.fewest = len < c.fewest ? len : c.fewest;
        c.ranks++;
    }
    return c;
}

/* Who has left samples: ranks, those of each communicator counted; communicators; and the calls of
 * the communicator that made fewest. */
struct origins {
    size_t ranks, comms, made;
};

static struct origins origins_of(const struct sample *s, size_t n)
{
    struct sample *copy = n ? malloc(n * sizeof *copy) : NULL;
    struct origins o = {.made = SIZE_MAX};
    if (!copy)
        return (struct origins){0};
    memcpy(copy, s, n * sizeof *copy);
    qsort(copy, n, sizeof *copy, by_rank);
    for (size_t i = 0, of_comm = 0; i < n; i++) {
        bool new_comm = i == 0 || copy[i].comm != copy[i - 1].comm;
        bool last = i + 1 == n || copy[i].comm != copy[i + 1].comm;
        o.ranks += i == 0 || copy[i].rank != copy[i - 1].rank;
        o.comms += new_comm;
        of_comm = new_comm || copy[i].call >= of_comm ? (size_t)copy[i].call + 1 : of_comm;
        o.made = last && of_comm < o.made ? of_comm : o.made;
    }
    free(copy);
    return o;
}

static bool is_default(const struct sample *s)
{
    return s->algo < 0 && s->proto < 0 && s->channels == 0;
}

/* Whether `ns` is better than the default's by `gain` percent. */
static bool gains(uint64_t default_ns, uint64_t ns, double gain)
{
    return (double)ns <= (double)default_ns * (1 - gain / 100);
}

/* All samples of one key. */
static struct finding judge(const struct sample *s, size_t n, double gain)
{
    struct finding f = {.func = s->func,
                        .size_class = s->size_class,
                        .registered = s->registered,
                        .nranks = s->nranks,
                        .nnodes = s->nnodes,
                        .algo = -1,
                        .proto = -1,
                        .calls = n};
    struct origins o = origins_of(s, n);
    f.complete = o.ranks > 0 && o.ranks == o.comms * (size_t)s->nranks;
    f.made = o.made;
    f.needed = (size_t)s->candidates * LEAST_SAMPLES;
    f.best_ns = UINT64_MAX;
    for (size_t at = 0, len; at < n; at += len) {
        len = 1;
        while (at + len < n && by_candidate(&s[at], &s[at + len]) == 0)
            len++;
        struct candidate c = weigh(s + at, len);
        bool enough = c.ranks == o.ranks && c.fewest >= LEAST_SAMPLES;
        if (is_default(&s[at])) {
            f.samples = c.ranks == o.ranks ? c.fewest : 0;
            f.enough = enough;
            f.default_ns = c.slowest;
        }
        if (enough && c.slowest < f.best_ns) {
            f.best_ns = c.slowest;
            f.algo = s[at].algo;
            f.proto = s[at].proto;
            f.channels = s[at].channels;
        }
    }
    f.better = f.enough && (f.algo >= 0 || f.channels > 0) && gains(f.default_ns, f.best_ns, gain);
    return f;
}

bool finding_told(const struct finding *f)
{
    return f->better || (f->enough && f->made >= f->needed);
}

struct finding *findings_make(struct samples *s, double gain, size_t *count)
{
    struct finding *list = calloc(s->n ? s->n : 1, sizeof *list);
    *count = 0;
    if (!list || !s->n) {
        free(list);
        return NULL;
    }
    qsort(s->at, s->n, sizeof *s->at, by_all);
    for (size_t at = 0, len; at < s->n; at += len) {
        len = 1;
        while (at + len < s->n && by_key(&s->at[at], &s->at[at + len]) == 0)
            len++;
        list[(*count)++] = judge(s->at + at, len, gain);
    }
    return list;
}

size_t findings_to_try(struct finding *f, size_t count, struct finding *tried)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        bool reached = f[i].nnodes == 1 || f[i].complete;
        if (f[i].better && !reached)
            f[i].trial = ELSEWHERE;
        tried[i] = f[i];
        tried[i].better = f[i].better && reached;
        n += tried[i].better;
    }
    return n;
}

/* A sample of the key and the choice, or of NCCL's default for the key. */
static struct sample wanted(const struct finding *f, bool choice)
{
    return (struct sample){.func = f->func,
                           .size_class = f->size_class,
                           .registered = f->registered,
                           .nranks = f->nranks,
                           .nnodes = f->nnodes,
                           .algo = choice ? f->algo : -1,
                           .proto = choice ? f->proto : -1,
                           .channels = choice ? f->channels : 0};
}

/* Where in the sorted samples those of the key are, and of the candidate too if that is asked;
 * returns how many. */
static size_t find(const struct samples *s, const struct sample *like, bool candidate, const struct sample **first)
{
    size_t n = 0;
    *first = NULL;
    for (size_t i = 0; i < s->n; i++)
        if (by_key(&s->at[i], like) == 0 && (!candidate || by_candidate(&s->at[i], like) == 0)) {
            *first = *first ? *first : &s->at[i];
            n++;
        }
    return n;
}

static void confirm(struct finding *f, const struct samples *s, double gain)
{
    const struct sample *of_key, *of_default, *of_choice, by_default = wanted(f, false), by_choice = wanted(f, true);
    size_t n_key = find(s, &by_default, false, &of_key);
    size_t n_default = find(s, &by_default, true, &of_default), n_choice = find(s, &by_choice, true, &of_choice);
    size_t ranks = origins_of(of_key, n_key).ranks;
    struct candidate before = weigh(of_default, n_default), after = weigh(of_choice, n_choice);
    bool all = ranks > 0 && before.ranks == ranks && after.ranks == ranks;
    f->samples = !all ? 0 : before.fewest < after.fewest ? before.fewest : after.fewest;
    f->default_ns = before.slowest;
    f->best_ns = after.slowest;
    f->trial = f->samples < LEAST_SAMPLES ? TOO_FEW : gains(before.slowest, after.slowest, gain) ? CONFIRMED : REFUTED;
    f->better = f->trial == CONFIRMED;
}

void findings_confirm(struct finding *f, size_t count, struct samples *second, double gain)
{
    if (second->n)
        qsort(second->at, second->n, sizeof *second->at, by_all);
    for (size_t i = 0; i < count; i++)
        if (f[i].better && f[i].trial != ELSEWHERE)
            confirm(&f[i], second, gain);
}
