/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over operations that are alike, and the lines of the log (docs/profiling.md). */
#include "plugin/profiler/profile_impl.h"

#include <string.h>
#include "base/status.h"
#include "base/log.h"
#include "plugin/abi/nccl_common.h"
#include "plugin/timeline/timeline.h"

pthread_mutex_t slr_profile_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t slr_profile_written = PTHREAD_COND_INITIALIZER;

/* ---- names ---- */

#define NAME_BYTES 24

/* Filled from the front and never emptied, so that a line is written without the lock. */
static struct {
    char text[NAME_BYTES]; /* as NCCL writes it */
    const char *shown;
} names[SLR_PROFILE_NAMES];

static bool same(unsigned i, const char *name)
{
    return strncmp(names[i].text, name, NAME_BYTES - 1) == 0;
}

/* Algorithms and protocols are called as in the tuner's lines and tables: NCCL tells profilers "COLLNET_DIRECT" of
 * what is CollNetDirect elsewhere. The result lives as long as the process: `name` is a text of the table above. */
static const char *as_elsewhere(const char *name)
{
    char bare[NAME_BYTES];
    size_t n = 0;
    for (const char *p = name; *p; p++)
        if (*p != '_')
            bare[n++] = *p;
    int algo = slr_tune_algo_number(bare, n), proto = slr_tune_proto_number(bare, n);
    return algo >= 0 ? slr_tune_algo_name(algo) : proto >= 0 ? slr_tune_proto_name(proto) : name;
}

unsigned slr_profile_name_id(const char *name)
{
    for (unsigned i = 0; name && *name && i < SLR_PROFILE_NAMES; i++) {
        if (!names[i].shown) {
            strncpy(names[i].text, name, NAME_BYTES - 1);
            names[i].shown = as_elsewhere(names[i].text);
        }
        if (same(i, name))
            return i + 1;
    }
    return 0;
}

static const char *name_of(unsigned id)
{
    return id ? names[id - 1].shown : "?";
}

unsigned slr_profile_type_id(const char *nccl_name)
{
    static const char *const types[] = {
        [ncclInt8] = "Int8",         [ncclUint8] = "Uint8",           [ncclInt32] = "Int32",
        [ncclUint32] = "Uint32",     [ncclInt64] = "Int64",           [ncclUint64] = "Uint64",
        [ncclFloat16] = "Float16",   [ncclFloat32] = "Float32",       [ncclFloat64] = "Float64",
        [ncclBfloat16] = "Bfloat16", [ncclFloat8e4m3] = "Float8e4m3", [ncclFloat8e5m2] = "Float8e5m2",
    };
    if (!nccl_name)
        return 0;
    for (unsigned type = 0; strncmp(nccl_name, "nccl", 4) == 0 && type < sizeof types / sizeof *types; type++)
        if (strcmp(nccl_name + 4, types[type]) == 0)
            return type + 1;
    /* What NCCL up to 2.30 calls the only type that it has forgotten to name. */
    return strcmp(nccl_name, "Unknown") == 0 ? ncclUint8 + 1 : 0;
}

/* ---- sums ---- */

void slr_profile_bind(struct slr_profile *p, const char *comm)
{
    if (!p->who.name[0])
        strncpy(p->who.name, comm, sizeof p->who.name - 1);
}

static const char *comm_name(const struct slr_profile_who *who)
{
    return who->name[0] ? who->name : "?";
}

/* First start to last stop over the channels. 0: not known, also when not all channels came, and
 * when NCCL's ring of time stamps was overwritten before its proxy thread came to read them (64
 * operations behind), which shows as an end before the beginning. */
static uint64_t kernel_ns(const struct slr_profile_record *r)
{
    const bool all = r->expect == SLR_EXPECT_UNKNOWN || r->seen >= r->expect;
    return all && r->last > r->first ? r->last - r->first : 0;
}

/* As announced; else as many as have come. */
static unsigned channels(const struct slr_profile_record *r)
{
    return r->channels ? r->channels : r->seen;
}

/* All that a sum's line tells but the bytes, in one word: comparing is cheap, as it is done for each operation. Bits
 * from 0 function, 8 algorithm, 16 protocol, 24 type, 32 reason, 40 channels, 56 whether it is a send or receive. */
static uint64_t key_of(const struct slr_profile_record *r)
{
    return (uint64_t)r->func | (uint64_t)r->algo << 8 | (uint64_t)r->proto << 16 | (uint64_t)r->dtype << 24 |
           (uint64_t)r->reason << 32 | (uint64_t)(channels(r) & 0xffff) << 40 | (uint64_t)(r->peer >= 0) << 56;
}

static struct slr_profile_sum *sum_of(struct slr_profile *p, uint64_t key, uint64_t bytes)
{
    /* A search from the front is enough: a program has few combinations. */
    for (unsigned i = 0; i < p->count; i++)
        if (p->sums[i].key == key && p->sums[i].bytes == bytes)
            return &p->sums[i];
    if (p->count == SLR_PROFILE_SUMS)
        return NULL;
    p->sums[p->count] = (struct slr_profile_sum){.key = key, .bytes = bytes, .min_ns = UINT64_MAX};
    return &p->sums[p->count++];
}

static void add(struct slr_profile *p, uint64_t key, uint64_t bytes, uint64_t ns)
{
    struct slr_profile_sum *s = sum_of(p, key, bytes);
    if (!s) {
        p->unsummed++;
        return;
    }
    s->calls++;
    if (!ns) /* counted, but its time is not known */
        return;
    s->timed++;
    s->total_ns += ns;
    s->min_ns = ns < s->min_ns ? ns : s->min_ns;
    s->max_ns = ns > s->max_ns ? ns : s->max_ns;
}

static const char *reason_of(unsigned reason)
{
    return reason == SLR_R_COUNT ? "-" : slr_reason_name((enum slr_reason)reason);
}

static const char *type_of(unsigned dtype)
{
    return dtype ? slr_type_name((ncclDataType_t)(dtype - 1)) : "?";
}

static void log_one(const struct slr_profile_who *who, const struct slr_profile_record *r)
{
    slr_log_asked("nccl",
                  "comm=%s comm_hash=%llx crank=%d nranks=%d func=%s seq=%llu call=%llu reason=%s count=%llu "
                  "dtype=%s bytes=%llu "
                  "peer=%d algo=%s proto=%s channels=%u begin=%llu end=%llu kernel_ns=%llu",
                  comm_name(who), (unsigned long long)who->hash, who->rank, who->nranks, name_of(r->func),
                  (unsigned long long)r->seq, (unsigned long long)r->call, reason_of(r->reason),
                  (unsigned long long)r->count, type_of(r->dtype), (unsigned long long)r->bytes, r->peer,
                  name_of(r->algo), name_of(r->proto), channels(r), (unsigned long long)r->begin,
                  (unsigned long long)r->end, (unsigned long long)kernel_ns(r));
}

/* SLIPRING_TRACE=N: every N-th call; a passed all-gather by slipring's number of it, others by NCCL's. */
static bool selected(const struct slr_profile_record *r)
{
    return slr_timeline_turn(r->call ? r->call : r->seq + 1);
}

/* The log writes to a file: not under the lock. */
static void write_one(const struct slr_profile_record *r)
{
    const struct slr_profile_record was = *r;
    const struct slr_profile_who who = r->owner->who;
    r->owner->writing++;
    pthread_mutex_unlock(&slr_profile_lock);
    log_one(&who, &was);
    pthread_mutex_lock(&slr_profile_lock);
    r->owner->writing--;
    pthread_cond_broadcast(&slr_profile_written);
}

void slr_profile_count(const struct slr_profile_record *r)
{
    if (selected(r))
        write_one(r);
    add(r->owner, key_of(r), r->bytes, kernel_ns(r));
}

static void log_sum(const struct slr_profile_who *who, const struct slr_profile_sum *s)
{
    uint64_t k = s->key;
    slr_log_asked("nccl_sum",
                  "comm=%s comm_hash=%llx crank=%d nranks=%d func=%s bytes=%llu dtype=%s reason=%s algo=%s proto=%s "
                  "channels=%u "
                  "calls=%llu timed=%llu min_ns=%llu mean_ns=%llu max_ns=%llu",
                  comm_name(who), (unsigned long long)who->hash, who->rank, who->nranks, name_of(k & 0xff),
                  (unsigned long long)s->bytes, type_of(k >> 24 & 0xff), reason_of(k >> 32 & 0xff),
                  name_of(k >> 8 & 0xff), name_of(k >> 16 & 0xff), (unsigned)(k >> 40 & 0xffff),
                  (unsigned long long)s->calls, (unsigned long long)s->timed,
                  (unsigned long long)(s->timed ? s->min_ns : 0),
                  (unsigned long long)(s->timed ? s->total_ns / s->timed : 0), (unsigned long long)s->max_ns);
}

/* False: it is none. */
static bool sum_at(const struct slr_profile *p, unsigned i, struct slr_profile_sum *s)
{
    pthread_mutex_lock(&slr_profile_lock);
    *s = p->sums[i];
    const bool any = i < p->count;
    pthread_mutex_unlock(&slr_profile_lock);
    return any;
}

void slr_profile_log_sums(struct slr_profile *p)
{
    struct slr_profile_sum s;
    for (unsigned i = 0; i < SLR_PROFILE_SUMS && sum_at(p, i, &s); i++)
        log_sum(&p->who, &s);
    pthread_mutex_lock(&slr_profile_lock);
    const uint64_t lost = p->lost, unsummed = p->unsummed;
    /* Once: an exit may come before NCCL closes the communicator. */
    p->count = 0;
    p->lost = p->unsummed = 0;
    pthread_mutex_unlock(&slr_profile_lock);
    if (lost || unsummed)
        slr_log_asked("nccl_lost", "comm=%s comm_hash=%llx crank=%d lost=%llu unsummed=%llu msg=%s", comm_name(&p->who),
                      (unsigned long long)p->who.hash, p->who.rank, (unsigned long long)lost,
                      (unsigned long long)unsummed,
                      "operations of NCCL that are in no sum: too many in flight, or too many different ones");
}
