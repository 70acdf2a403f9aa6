/* SPDX-License-Identifier: Apache-2.0 */
/* Rules for call sites: reading and writing a line. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "plugin/tuner/tune_impl.h"

enum {
    KEY_OP,
    KEY_BYTES,
    KEY_RANKS,
    KEY_GPU,
    KEY_WAYS,
    KEY_SETUP,
    KEY_CONTEXT,
    KEY_GEMM,
    KEY_TRANS,
    KEY_TYPE,
    KEY_GATHERED,
    KEY_BATCH,
    KEY_WAY,
    KEY_CUT,
    KEYS
};
static const struct slr_tune_key keys[KEYS] = {
    {"op", false},       {"bytes", false},   {"ranks", false}, {"gpu", false},   {"ways", false},
    {"setup", false},    {"context", false}, {"gemm", false},  {"trans", false}, {"type", false},
    {"gathered", false}, {"batch", false},   {"way", true},    {"cut", true}};

#define OF_GEMMS (1u << KEY_TRANS | 1u << KEY_TYPE | 1u << KEY_GATHERED | 1u << KEY_BATCH)
#define MARK "# kept by slipring"

/* Of a GEMM: MxNxK. */
static bool read_sizes(struct slr_tune_word value, struct slr_consumer *c)
{
    int64_t *const size[] = {&c->m, &c->n, &c->k};
    const char *at = value.at, *end = value.at + value.len;
    for (int i = 0; i < 3; i++) {
        const char *x = at;
        uint64_t n;
        while (x < end && (*x | 0x20) != 'x') /* a capital X too */
            x++;
        if (!slr_tune_number((struct slr_tune_word){at, (size_t)(x - at)}, false, &n) || n < 1 || n > INT64_MAX ||
            (x == end) != (i == 2))
            return false;
        *size[i] = (int64_t)n;
        at = x + 1;
    }
    return true;
}

static int set_gemm(struct slr_tune_line *l, struct slr_tune_site *r, struct slr_tune_word value)
{
    if (slr_tune_same(value, "none"))
        r->consumer.m = 0;
    else if (!slr_tune_same(value, "any") && !read_sizes(value, &r->consumer))
        return slr_tune_broken(l, "gemm=%.*s: expected none, any, or sizes such as 4096x8192x1024",
                               SLR_TUNE_SHOWN(value));
    return 0;
}

static int set_number(struct slr_tune_line *l, const char *key, uint64_t most, uint64_t *out,
                      struct slr_tune_word value)
{
    if (slr_tune_number(value, false, out) && *out >= 1 && *out <= most)
        return 0;
    return slr_tune_broken(l, "%s=%.*s: expected a whole number from 1 to %llu", key, SLR_TUNE_SHOWN(value),
                           (unsigned long long)most);
}

static int set_hex(struct slr_tune_line *l, const char *key, uint64_t *out, struct slr_tune_word value)
{
    bool good = value.len > 0 && value.len <= 16;
    for (size_t i = 0; i < value.len && good; i++) {
        const char *digits = "0123456789abcdef", *digit = memchr(digits, value.at[i] | 0x20, 16);
        good = digit != NULL;
        *out = *out << 4 | (good ? (uint64_t)(digit - digits) : 0);
    }
    return good ? 0 : slr_tune_broken(l, "%s=%.*s: expected up to 16 hexadecimal digits", key, SLR_TUNE_SHOWN(value));
}

static int set_word(struct slr_tune_line *l, const char *key, char *out, size_t size, struct slr_tune_word value)
{
    if (value.len == 0 || value.len >= size)
        return slr_tune_broken(l, "%s=%.*s: expected a word of at most %zu letters", key, SLR_TUNE_SHOWN(value),
                               size - 1);
    memcpy(out, value.at, value.len);
    out[value.len] = '\0';
    return 0;
}

static int set_way(struct slr_tune_line *l, struct slr_tune_site *r, struct slr_tune_word value)
{
    r->nccl = slr_tune_same(value, "nccl");
    if (r->nccl || slr_tune_same(value, "ring"))
        return 0;
    return slr_tune_broken(l, "way=%.*s: expected ring or nccl", SLR_TUNE_SHOWN(value));
}

static int set_op(struct slr_tune_line *l, struct slr_tune_site *r, struct slr_tune_word value)
{
    for (int id = 0; id < SLR_COLLECTIVES; id++)
        if (slr_tune_same(value, slr_collectives[id].op)) {
            r->kind = (enum slr_collective_id)id;
            return 0;
        }
    return slr_tune_broken(l, "op=%.*s: expected allgather or reducescatter", SLR_TUNE_SHOWN(value));
}

static int set_of_gemm(struct slr_tune_line *l, struct slr_consumer *c, int key, struct slr_tune_word value)
{
    if (key == KEY_TRANS  ? slr_consumer_trans_read(c, value.at, value.len)
        : key == KEY_TYPE ? slr_consumer_type_read(c, value.at, value.len)
                          : slr_consumer_gathered_read(c, value.at, value.len))
        return 0;
    return slr_tune_broken(l, "%s=%.*s: expected %s", keys[key].name, SLR_TUNE_SHOWN(value),
                           key == KEY_TRANS  ? "two letters of n, t and c"
                           : key == KEY_TYPE ? "a type such as bf16 or fp32, or three such as bf16,bf16,fp32"
                                             : "a or b");
}

static int set(struct slr_tune_line *l, void *rule, int key, struct slr_tune_word value)
{
    struct slr_tune_site *r = rule;
    uint64_t n = 0;
    int rc = 0;
    switch (key) {
    case KEY_OP:
        return set_op(l, r, value);
    case KEY_BYTES:
        return slr_tune_set_range(l, keys[key].name, true, &r->bytes, value);
    case KEY_RANKS:
        return slr_tune_set_range(l, keys[key].name, false, &r->ranks, value);
    case KEY_GPU:
        return set_word(l, keys[key].name, r->gpu, sizeof r->gpu, value);
    case KEY_WAYS:
        rc = set_number(l, keys[key].name, UINT32_MAX, &n, value);
        r->ways = (uint32_t)n;
        return rc;
    case KEY_SETUP:
        return set_hex(l, keys[key].name, &r->setup, value);
    case KEY_CONTEXT:
        return set_hex(l, keys[key].name, &r->context, value);
    case KEY_GEMM:
        return set_gemm(l, r, value);
    case KEY_BATCH:
        rc = set_number(l, keys[key].name, INT64_MAX, &n, value);
        r->consumer.batch = (int64_t)n;
        return rc;
    case KEY_WAY:
        return set_way(l, r, value);
    case KEY_CUT:
        return set_word(l, keys[key].name, r->cut, sizeof r->cut, value);
    }
    return set_of_gemm(l, &r->consumer, key, value);
}

int slr_tune_site_parse(struct slr_tune_line *l, struct slr_tune_site *r)
{
    const char *comment = memchr(l->at, '#', (size_t)(l->end - l->at));
    *r = (struct slr_tune_site){
        .line = l->number, .bytes = {0, UINT64_MAX}, .ranks = {0, UINT64_MAX}, .consumer = SLR_CONSUMER_ANY};
    r->kept = comment && (size_t)(l->end - comment) >= sizeof MARK - 1 && memcmp(comment, MARK, sizeof MARK - 1) == 0;
    int rc = slr_tune_pairs(l, keys, KEYS, r, set);
    if (rc)
        return rc;
    if (!(l->seen & 1u << KEY_WAY))
        return slr_tune_broken(l, "no way: expected way=ring or way=nccl after the colon");
    if (r->nccl && r->cut[0])
        return slr_tune_broken(l, "cut=%s with way=nccl: expected way=ring, as with NCCL every GEMM is whole", r->cut);
    if (r->consumer.m == 0 && l->seen & OF_GEMMS)
        return slr_tune_broken(l, "gemm=none, and what a GEMM is like: expected one of them");
    if (slr_collectives[r->kind].produced && l->seen & 1u << KEY_GATHERED)
        return slr_tune_broken(l, "gathered with op=%s: expected op=allgather, as nothing is gathered",
                               slr_collectives[r->kind].op);
    if (r->consumer.m == 0)
        r->consumer = (struct slr_consumer){0};
    else if (slr_collectives[r->kind].produced)
        r->consumer.gathered = SLR_CONSUMER_C;
    return 0;
}

void slr_tune_gpu_word(const char *name, char word[SLR_TUNE_GPU])
{
    size_t i = 0;
    for (; name[i] && i < SLR_TUNE_GPU - 1; i++) {
        const unsigned char c = (unsigned char)name[i];
        word[i] = c <= ' ' || c > '~' || c == ':' || c == '#' || c == '=' ? '-' : name[i];
    }
    word[i] = '\0';
}

static bool same_range(const struct slr_tune_range *a, const struct slr_tune_range *b)
{
    return a->low == b->low && a->high == b->high;
}

bool slr_tune_site_same(const struct slr_tune_site *a, const struct slr_tune_site *b, bool consumers)
{
    return a->kind == b->kind && same_range(&a->bytes, &b->bytes) && same_range(&a->ranks, &b->ranks) &&
           strcasecmp(a->gpu, b->gpu) == 0 && a->ways == b->ways && a->setup == b->setup && a->context == b->context &&
           (!consumers ||
            (slr_consumer_fits(&a->consumer, &b->consumer) && slr_consumer_fits(&b->consumer, &a->consumer)));
}

size_t slr_tune_site_write(const struct slr_tune_site *r, char *buf, size_t size)
{
    const struct slr_consumer *c = &r->consumer;
    char op[32] = "", context[32] = "", gemm[224] = "", trans[SLR_CONSUMER_TEXT], type[SLR_CONSUMER_TEXT];
    if (c->m <= 0)
        snprintf(gemm, sizeof gemm, "gemm=%s", c->m ? "any" : "none");
    else
        snprintf(gemm, sizeof gemm, "gemm=%lldx%lldx%lld trans=%s type=%s%s%s batch=%lld", (long long)c->m,
                 (long long)c->n, (long long)c->k, slr_consumer_trans_text(c, trans), slr_consumer_type_text(c, type),
                 slr_collectives[r->kind].produced ? "" : " gathered=",
                 slr_collectives[r->kind].produced ? "" : slr_consumer_gathered_text(c), (long long)c->batch);
    if (r->kind != SLR_ALL_GATHER)
        snprintf(op, sizeof op, "op=%s ", slr_collectives[r->kind].op);
    if (r->context)
        snprintf(context, sizeof context, "context=%llx ", (unsigned long long)r->context);
    int n = snprintf(buf, size, "site %sbytes=%llu ranks=%llu gpu=%s ways=%u setup=%llx %s%s : way=%s%s%s %s", op,
                     (unsigned long long)r->bytes.low, (unsigned long long)r->ranks.low, r->gpu, r->ways,
                     (unsigned long long)r->setup, context, gemm, r->nccl ? "nccl" : "ring", r->cut[0] ? " cut=" : "",
                     r->cut, MARK);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}
