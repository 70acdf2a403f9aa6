/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of tune files, and the search in a table. */
#include "plugin/tuner/tune_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/hash.h"
#include "plugin/tuner/tune_impl.h"
#include "plugin/abi/nccl_common.h"

/* ---- rules for NCCL ---- */

static bool read_registered(struct slr_tune_word value, void *field)
{
    *(int *)field = slr_tune_same(value, "any") ? -1 : slr_tune_same(value, "yes");
    return *(int *)field != 0 || slr_tune_same(value, "no");
}

static bool read_algorithm(struct slr_tune_word value, void *field)
{
    return (*(int *)field = slr_tune_algo_number(value.at, value.len)) >= -1;
}

static bool read_protocol(struct slr_tune_word value, void *field)
{
    return (*(int *)field = slr_tune_proto_number(value.at, value.len)) >= -1;
}

static bool read_channels(struct slr_tune_word value, void *field)
{
    uint64_t n = 0;
    const bool by_default = slr_tune_same(value, "default"), one = slr_tune_number(value, false, &n) && n >= 1;
    *(int *)field = (int)n;
    return by_default || (one && n <= SLR_NCCL_MAX_CHANNELS);
}

#define AT(field) offsetof(struct slr_tune_rule, field)
static const struct slr_tune_key keys[] = {
    {"bytes", false, slr_tune_read_sizes, AT(bytes), SLR_TUNE_SIZES_EXPECTED},
    {"ranks", false, slr_tune_read_range, AT(ranks), SLR_TUNE_RANGE_EXPECTED},
    {"nodes", false, slr_tune_read_range, AT(nodes), SLR_TUNE_RANGE_EXPECTED},
    {"registered", false, read_registered, AT(registered), "yes, no or any"},
    {"algorithm", true, read_algorithm, AT(algo),
     "default, tree, ring, collnetdirect, collnetchain, nvls, nvlstree or pat"},
    {"protocol", true, read_protocol, AT(proto), "default, ll, ll128 or simple"},
    {"channels", true, read_channels, AT(channels), "default or a whole number from 1 to 64"},
};
_Static_assert(SLR_NCCL_MAX_CHANNELS == 64, "as the message says");

static int parse_rule(struct slr_tune_line *l, struct slr_tune_rule *r, struct slr_tune_word func)
{
    *r = (struct slr_tune_rule){.line = l->number,
                                .registered = -1,
                                .bytes = {0, UINT64_MAX},
                                .ranks = {0, UINT64_MAX},
                                .nodes = {0, UINT64_MAX},
                                .algo = -1,
                                .proto = -1};
    r->func = slr_tune_func_number(func.at, func.len);
    if (r->func < -1)
        return slr_tune_broken(l,
                               "\"%.*s\": expected allgather, allreduce, broadcast, reduce, reducescatter, any or site",
                               SLR_TUNE_SHOWN(func));
    int rc = slr_tune_pairs(l, keys, sizeof keys / sizeof *keys, r);
    if (rc)
        return rc;
    if (r->channels && (r->algo == SLR_NCCL_COLLNET_DIRECT || r->algo == SLR_NCCL_COLLNET_CHAIN))
        return slr_tune_broken(
            l, "channels=%d with a CollNet algorithm: expected channels=default, NCCL does not bound them there",
            r->channels);
    return 0;
}

/* Room for one more in an array that grows. */
static int grow(struct slr_tune_line *l, const struct slr_tune_table *t, void **array, size_t *room, size_t count,
                size_t size)
{
    if (t->count + t->sites == SLR_TUNE_MAX_RULES)
        return slr_tune_broken(l, "one rule too many: expected at most %u", SLR_TUNE_MAX_RULES);
    if (count < *room)
        return 0;
    void *more = realloc(*array, (*room ? 2 * *room : 16) * size);
    if (!more)
        /* Not the fault of the line, which only the message names. */
        return slr_tune_broken(l, "no memory for the rules"), -ENOMEM;
    *array = more;
    *room = *room ? 2 * *room : 16;
    return 0;
}

static int add_rule(struct slr_tune_table *t, struct slr_tune_line *l, struct slr_tune_word kind)
{
    struct slr_tune_rule rule;
    void *array = t->rule;
    int rc = parse_rule(l, &rule, kind);
    rc = rc ? rc : grow(l, t, &array, &t->room, t->count, sizeof rule);
    t->rule = array;
    if (!rc)
        t->rule[t->count++] = rule;
    return rc;
}

static int add_site(struct slr_tune_table *t, struct slr_tune_line *l)
{
    struct slr_tune_site site;
    void *array = t->site;
    int rc = slr_tune_site_parse(l, &site);
    rc = rc ? rc : grow(l, t, &array, &t->site_room, t->sites, sizeof site);
    t->site = array;
    if (!rc)
        t->site[t->sites++] = site;
    return rc;
}

/* Of what the rules for NCCL say, so that tables that differ in comments only count as equal. Part of what ranks
 * compare. Begins with "tune" in ASCII; never 0, which says that there is no table (tune_file.c). */
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

static int parse_line(struct slr_tune_table *t, struct slr_tune_line *l)
{
    size_t len = (size_t)(l->end - l->at);
    if (len > SLR_TUNE_MAX_LINE)
        return slr_tune_broken(l, "a line of %zu bytes: expected at most %u", len, SLR_TUNE_MAX_LINE);
    /* A binary file is refused at its first line, not quoted. */
    for (const char *p = l->at; p < l->end; p++)
        if ((unsigned char)*p < 0x20 && !slr_tune_is_space(*p))
            return slr_tune_broken(l, "a byte of value %d: expected text", (unsigned char)*p);
    struct slr_tune_word kind = slr_tune_next_word(l);
    if (!kind.len)
        return 0;
    return slr_tune_same(kind, "site") ? add_site(t, l) : add_rule(t, l, kind);
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
        struct slr_tune_line l = {.at = at, .end = feed ? feed : end, .number = n, .error = error};
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
    free(table->site);
    *table = (struct slr_tune_table){0};
}

static bool in(const struct slr_tune_range *r, uint64_t n)
{
    return n >= r->low && n <= r->high;
}

const struct slr_tune_rule *slr_tune_find(const struct slr_tune_table *table, const struct slr_tune_call *call)
{
    /* In their order, which is the user's priority; a table has a few rules, so no index is kept. */
    for (size_t i = 0; i < table->count; i++) {
        const struct slr_tune_rule *r = &table->rule[i];
        if ((r->func == -1 || r->func == call->func) && (r->registered == -1 || r->registered == call->registered) &&
            in(&r->bytes, call->bytes) && in(&r->ranks, call->ranks) && in(&r->nodes, call->nodes))
            return r;
    }
    return NULL;
}

/* ---- the file: whatever the path is, it is read without waiting and with a bound ---- */

/* The file as a whole is refused. */
static int broken(struct slr_tune_error *error, int rc, const char *what)
{
    error->line = 0;
    snprintf(error->text, sizeof error->text, "%s", what);
    return rc;
}

/* The system refused; errno says why. */
static int cannot(struct slr_tune_error *error, const char *what)
{
    int e = errno;
    error->line = 0;
    snprintf(error->text, sizeof error->text, "%s: %s: expected a readable text file", what, strerror(e));
    return -e;
}

ssize_t slr_tune_read_whole(int fd, char *buf, size_t size)
{
    size_t have = 0;
    for (ssize_t n = 1; have < size && n > 0;) {
        n = read(fd, buf + have, size - have);
        if (n < 0 && errno != EINTR)
            return -1;
        have += n > 0 ? (size_t)n : 0;
        n = n < 0 ? 1 : n;
    }
    return (ssize_t)have;
}

static int load(struct slr_tune_table *table, int fd, struct slr_tune_error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return cannot(error, "can not be examined");
    /* A pipe would wait for its writer, inside of ncclCommInitRank. */
    if (!S_ISREG(st.st_mode))
        return broken(error, -EINVAL,
                      S_ISDIR(st.st_mode) ? "is a directory: expected a text file"
                                          : "is a device or a pipe: expected a text file");
    char *buf = malloc(SLR_TUNE_MAX_BYTES + 1);
    if (!buf)
        return broken(error, -ENOMEM, "no memory to read it");
    /* One byte more than is allowed tells a file that is too long; its size may change. */
    ssize_t n = slr_tune_read_whole(fd, buf, SLR_TUNE_MAX_BYTES + 1);
    int rc;
    if (n < 0)
        rc = cannot(error, "can not be read");
    else if (n == 0)
        rc = broken(error, -EINVAL, "is empty: expected rules, or a comment where there are none");
    else if ((size_t)n > SLR_TUNE_MAX_BYTES)
        rc = broken(error, -EFBIG, "is longer than 1 MiB: expected a table of at most 4096 rules");
    else
        rc = slr_tune_parse(table, buf, (size_t)n, error);
    free(buf);
    return rc;
}

int slr_tune_load(struct slr_tune_table *table, const char *path, struct slr_tune_error *error)
{
    *table = (struct slr_tune_table){0};
    /* O_NONBLOCK: opening a named pipe must not wait either. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return cannot(error, "can not be opened");
    int rc = load(table, fd, error);
    close(fd);
    return rc;
}
