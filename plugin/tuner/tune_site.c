/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a line, which copy nothing; and rules for call sites: reading and writing a line. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "plugin/tuner/tune_impl.h"

int slr_tune_broken(struct slr_tune_line *l, const char *fmt, ...)
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

struct slr_tune_word slr_tune_next_word(struct slr_tune_line *l)
{
    while (l->at < l->end && slr_tune_is_space(*l->at))
        l->at++;
    struct slr_tune_word w = {l->at, 0};
    if (l->at < l->end && *l->at == '#') /* a comment ends the line */
        l->at = l->end;
    else if (l->at < l->end && *l->at == ':')
        l->at++, w.len = 1;
    else
        while (l->at < l->end && !slr_tune_is_space(*l->at) && *l->at != ':' && *l->at != '#')
            l->at++, w.len++;
    return w;
}

bool slr_tune_same(struct slr_tune_word w, const char *text)
{
    return strlen(text) == w.len && !strncasecmp(w.at, text, w.len);
}

bool slr_tune_number(struct slr_tune_word w, bool sized, uint64_t *out)
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

static bool read_range(struct slr_tune_word w, bool sized, struct slr_tune_range *out)
{
    *out = (struct slr_tune_range){0, UINT64_MAX};
    if (slr_tune_same(w, "any"))
        return true;
    const char *dots = memmem(w.at, w.len, "..", 2);
    if (!dots) {
        bool good = slr_tune_number(w, sized, &out->low);
        out->high = out->low;
        return good;
    }
    /* Either end may be missing, but not both. */
    struct slr_tune_word low = {w.at, (size_t)(dots - w.at)}, high = {dots + 2, w.len - low.len - 2};
    return (low.len || high.len) && (!low.len || slr_tune_number(low, sized, &out->low)) &&
           (!high.len || slr_tune_number(high, sized, &out->high)) && out->low <= out->high;
}

bool slr_tune_read_range(struct slr_tune_word value, void *field)
{
    return read_range(value, false, field);
}

bool slr_tune_read_sizes(struct slr_tune_word value, void *field)
{
    return read_range(value, true, field);
}

/* "bytes=, ranks= or nodes=": those that stand before the colon, or behind it. */
static const char *list_keys(const struct slr_tune_key *keys, int count, bool chosen, char *buf, size_t size)
{
    size_t at = 0;
    int left = 0;
    for (int i = 0; i < count; i++)
        left += keys[i].chosen == chosen;
    for (int i = 0; i < count && at < size; i++)
        if (keys[i].chosen == chosen)
            at += (size_t)snprintf(buf + at, size - at, "%s=%s", keys[i].name,
                                   --left > 1  ? ", "
                                   : left == 1 ? " or "
                                               : "");
    return buf;
}

static int strange_key(struct slr_tune_line *l, const struct slr_tune_key *keys, int count, bool chosen,
                       struct slr_tune_word w)
{
    char names[160];
    return slr_tune_broken(l, "\"%.*s\": expected %s, or %s", SLR_TUNE_SHOWN(w),
                           list_keys(keys, count, chosen, names, sizeof names),
                           chosen ? "the end of the line" : "a colon before what is chosen");
}

int slr_tune_pairs(struct slr_tune_line *l, const struct slr_tune_key *keys, int count, void *rule)
{
    bool chosen = false, nothing = true;
    for (struct slr_tune_word w = slr_tune_next_word(l); w.len; w = slr_tune_next_word(l)) {
        if (w.len == 1 && *w.at == ':') {
            if (chosen)
                return slr_tune_broken(l, "a second colon: expected one, between conditions and choices");
            chosen = true;
            continue;
        }
        const char *equals = memchr(w.at, '=', w.len);
        struct slr_tune_word name = {w.at, equals ? (size_t)(equals - w.at) : w.len};
        int key = 0;
        while (key < count && (keys[key].chosen != chosen || !slr_tune_same(name, keys[key].name)))
            key++;
        if (key == count || !equals)
            return strange_key(l, keys, count, chosen, w);
        if (l->seen & 1u << key)
            return slr_tune_broken(l, "%s is given twice: expected once", keys[key].name);
        l->seen |= 1u << key;
        nothing &= !chosen;
        const struct slr_tune_word value = {equals + 1, w.len - name.len - 1};
        if (!keys[key].read(value, (char *)rule + keys[key].field))
            return slr_tune_broken(l, "%s=%.*s: expected %s", keys[key].name, SLR_TUNE_SHOWN(value),
                                   keys[key].expected);
    }
    char names[160];
    if (!chosen)
        return slr_tune_broken(l, "the line ends without a colon: expected \"KIND conditions : choices\"");
    return nothing ? slr_tune_broken(l, "nothing is chosen: expected %s after the colon",
                                     list_keys(keys, count, true, names, sizeof names))
                   : 0;
}

/* ---- rules for call sites ---- */

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

/* Into its consumer, as what follows. */
static bool read_gemm(struct slr_tune_word value, void *field)
{
    struct slr_consumer *c = field;
    if (!slr_tune_same(value, "none"))
        return slr_tune_same(value, "any") || read_sizes(value, c);
    c->m = 0;
    return true;
}

static bool read_trans(struct slr_tune_word value, void *field)
{
    return slr_consumer_trans_read(field, value.at, value.len);
}

static bool read_type(struct slr_tune_word value, void *field)
{
    return slr_consumer_type_read(field, value.at, value.len);
}

static bool read_gathered(struct slr_tune_word value, void *field)
{
    return slr_consumer_gathered_read(field, value.at, value.len);
}

static bool read_batch(struct slr_tune_word value, void *field)
{
    uint64_t n = 0;
    const bool good = slr_tune_number(value, false, &n) && n >= 1 && n <= INT64_MAX;
    ((struct slr_consumer *)field)->batch = (int64_t)n;
    return good;
}

static bool read_ways(struct slr_tune_word value, void *field)
{
    uint64_t n = 0;
    const bool good = slr_tune_number(value, false, &n) && n >= 1 && n <= UINT32_MAX;
    *(uint32_t *)field = (uint32_t)n;
    return good;
}

static bool read_hex(struct slr_tune_word value, void *field)
{
    bool good = value.len > 0 && value.len <= 16;
    for (size_t i = 0; i < value.len && good; i++) {
        const char *digits = "0123456789abcdef", *digit = memchr(digits, value.at[i] | 0x20, 16);
        good = digit != NULL;
        *(uint64_t *)field = *(uint64_t *)field << 4 | (good ? (uint64_t)(digit - digits) : 0);
    }
    return good;
}

static bool read_word(struct slr_tune_word value, char *out, size_t size)
{
    if (value.len == 0 || value.len >= size)
        return false;
    memcpy(out, value.at, value.len);
    out[value.len] = '\0';
    return true;
}

static bool read_gpu(struct slr_tune_word value, void *field)
{
    return read_word(value, field, SLR_TUNE_GPU);
}

static bool read_cut(struct slr_tune_word value, void *field)
{
    return read_word(value, field, SLR_TUNE_CUT);
}

static bool read_way(struct slr_tune_word value, void *field)
{
    return (*(bool *)field = slr_tune_same(value, "nccl")) || slr_tune_same(value, "ring");
}

static bool read_op(struct slr_tune_word value, void *field)
{
    for (int id = 0; id < SLR_COLLECTIVES; id++)
        if (slr_tune_same(value, slr_collectives[id].op)) {
            *(enum slr_collective_id *)field = (enum slr_collective_id)id;
            return true;
        }
    return false;
}

enum { KEY_TRANS = 8, KEY_TYPE, KEY_GATHERED, KEY_BATCH, KEY_WAY, KEYS = 14 };
#define OF_GEMMS (1u << KEY_TRANS | 1u << KEY_TYPE | 1u << KEY_GATHERED | 1u << KEY_BATCH)
#define AT(field) offsetof(struct slr_tune_site, field)
static const struct slr_tune_key keys[KEYS] = {
    {"op", false, read_op, AT(kind), "allgather, reducescatter or allreduce"},
    {"bytes", false, slr_tune_read_sizes, AT(bytes), SLR_TUNE_SIZES_EXPECTED},
    {"ranks", false, slr_tune_read_range, AT(ranks), SLR_TUNE_RANGE_EXPECTED},
    {"gpu", false, read_gpu, AT(gpu), "a word of at most 63 letters"},
    {"ways", false, read_ways, AT(ways), "a whole number from 1 to 4294967295"},
    {"setup", false, read_hex, AT(setup), "up to 16 hexadecimal digits"},
    {"context", false, read_hex, AT(context), "up to 16 hexadecimal digits"},
    {"gemm", false, read_gemm, AT(consumer), "none, any, or sizes such as 4096x8192x1024"},
    [KEY_TRANS] = {"trans", false, read_trans, AT(consumer), "two letters of n, t and c"},
    [KEY_TYPE] = {"type", false, read_type, AT(consumer),
                  "a type such as bf16 or fp32, or three such as bf16,bf16,fp32"},
    [KEY_GATHERED] = {"gathered", false, read_gathered, AT(consumer), "a or b"},
    [KEY_BATCH] = {"batch", false, read_batch, AT(consumer), "a whole number from 1 to 9223372036854775807"},
    [KEY_WAY] = {"way", true, read_way, AT(nccl), "ring or nccl"},
    {"cut", true, read_cut, AT(cut), "a word of at most 15 letters"},
};
_Static_assert(SLR_TUNE_GPU == 64 && SLR_TUNE_CUT == 16, "as the messages say");

int slr_tune_site_parse(struct slr_tune_line *l, struct slr_tune_site *r)
{
    const char *comment = memchr(l->at, '#', (size_t)(l->end - l->at));
    *r = (struct slr_tune_site){
        .line = l->number, .bytes = {0, UINT64_MAX}, .ranks = {0, UINT64_MAX}, .consumer = SLR_CONSUMER_ANY};
    r->kept = comment && (size_t)(l->end - comment) >= sizeof MARK - 1 && memcmp(comment, MARK, sizeof MARK - 1) == 0;
    int rc = slr_tune_pairs(l, keys, KEYS, r);
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
