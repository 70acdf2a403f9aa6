/* Which candidate is best for each key. Samples are sorted by key, candidate, rank and time, so that everything is a
 * run of neighbours. */
#include <stdlib.h>
#include <string.h>
#include "tools/tune/tune.h"

static int order(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* Of the key: both by collective, ranks, nodes, registration and size, so that rules that can be one are neighbours. */
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
    return order(((const struct sample *)pa)->rank, ((const struct sample *)pb)->rank);
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

static size_t ranks_of(const struct sample *s, size_t n)
{
    struct sample *copy = malloc(n * sizeof *copy);
    size_t ranks = 0;
    if (!copy)
        return 0;
    memcpy(copy, s, n * sizeof *copy);
    qsort(copy, n, sizeof *copy, by_rank);
    for (size_t i = 0; i < n; i++)
        ranks += i == 0 || copy[i].rank != copy[i - 1].rank;
    free(copy);
    return ranks;
}

static bool is_default(const struct sample *s)
{
    return s->algo < 0 && s->proto < 0 && s->channels == 0;
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
    size_t ranks = ranks_of(s, n);
    f.best_ns = UINT64_MAX;
    for (size_t at = 0, len; at < n; at += len) {
        len = 1;
        while (at + len < n && by_candidate(&s[at], &s[at + len]) == 0)
            len++;
        struct candidate c = weigh(s + at, len);
        bool enough = c.ranks == ranks && c.fewest >= LEAST_SAMPLES;
        if (is_default(&s[at])) {
            f.samples = c.ranks == ranks ? c.fewest : 0;
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
    f.better =
        f.enough && (f.algo >= 0 || f.channels > 0) && (double)f.best_ns <= (double)f.default_ns * (1 - gain / 100);
    return f;
}

struct finding *findings_make(struct samples *s, double gain, size_t *count)
{
    struct finding *list = calloc(s->count ? s->count : 1, sizeof *list);
    *count = 0;
    if (!list || !s->count) {
        free(list);
        return NULL;
    }
    qsort(s->list, s->count, sizeof *s->list, by_all);
    for (size_t at = 0, len; at < s->count; at += len) {
        len = 1;
        while (at + len < s->count && by_key(&s->list[at], &s->list[at + len]) == 0)
            len++;
        list[(*count)++] = judge(s->list + at, len, gain);
    }
    return list;
}
