/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over operations that are alike, and the lines of the log (docs/profiling.md). */
#include "plugin/profiler/profile_impl.h"

#include <sched.h>
#include <string.h>
#include "base/reason.h"
#include "base/log.h"
#include "plugin/abi/nccl_common.h"
#include "plugin/timeline/timeline.h"

/* ---- names ---- */

#define NAME_BYTES 24

/* Filled from the front and never emptied, so a reader needs no lock: FREE -> WRITING -> WRITTEN.
 */
enum { FREE, WRITING, WRITTEN };
static struct {
    _Atomic int state;
    char text[NAME_BYTES]; /* as NCCL writes it */
    const char *shown;
} names[SLR_PROFILE_NAMES];

static bool same(unsigned i, const char *name)
{
    return strncmp(names[i].text, name, NAME_BYTES - 1) == 0;
}

/* Algorithms and protocols are called as in the tuner's lines and tables: NCCL tells profilers
 * "COLLNET_DIRECT" of what is CollNetDirect elsewhere. The result lives as long as the process:
 * `name` is a text of the table above. */
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

/* Names never leave: the first free place ends the search. */
unsigned slr_profile_name_id(const char *name)
{
    for (unsigned i = 0; name && *name && i < SLR_PROFILE_NAMES; i++) {
        int state = FREE;
        if (atomic_compare_exchange_strong(&names[i].state, &state, WRITING)) {
            strncpy(names[i].text, name, NAME_BYTES - 1);
            names[i].shown = as_elsewhere(names[i].text);
            atomic_store_explicit(&names[i].state, WRITTEN, memory_order_release);
            return i + 1;
        }
        /* Somebody writes this place now, perhaps the same name: wait for it, which takes moments.
         */
        while (atomic_load_explicit(&names[i].state, memory_order_acquire) != WRITTEN)
            sched_yield();
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

/* BINDING: the name is being written, and nobody reads it yet. */
enum { UNBOUND, BINDING, BOUND };

void slr_profile_bind(struct slr_profile *p, const char *comm)
{
    /* The first who knows the name writes it; later ones know the same. */
    int none = UNBOUND;
    if (!atomic_compare_exchange_strong(&p->bound, &none, BINDING))
        return;
    strncpy(p->name, comm, sizeof p->name - 1);
    atomic_store_explicit(&p->bound, BOUND, memory_order_release);
}

/* slipring's name of the communicator; "?" until it is known and whole. */
static const char *comm_name(struct slr_profile *p)
{
    return atomic_load_explicit(&p->bound, memory_order_acquire) == BOUND ? p->name : "?";
}

/* First start to last stop over the channels. 0: not known, also when not all channels came, and
 * when NCCL's ring of time stamps was overwritten before its proxy thread came to read them (64
 * operations behind), which shows as an end before the beginning. */
static uint64_t kernel_ns(const struct slr_profile_record *r, unsigned seen)
{
    unsigned expect = atomic_load_explicit(&r->expect, memory_order_relaxed);
    if (expect != SLR_EXPECT_UNKNOWN && seen < expect)
        return 0;
    uint64_t first = atomic_load_explicit(&r->first, memory_order_relaxed);
    uint64_t last = atomic_load_explicit(&r->last, memory_order_relaxed);
    return last > first ? last - first : 0;
}

/* As announced; else as many as have come. */
static unsigned channels(const struct slr_profile_record *r, unsigned seen)
{
    return r->channels ? r->channels : seen;
}

/* All that a sum's line tells but the bytes, in one word: comparing is cheap, as it is done for
 * each operation. Bits from 0 function, 8 algorithm, 16 protocol, 24 type, 32 reason, 40 channels,
 * 56 whether it is a send or receive. */
static uint64_t key_of(const struct slr_profile_record *r, unsigned seen)
{
    return (uint64_t)r->func | (uint64_t)r->algo << 8 | (uint64_t)r->proto << 16 | (uint64_t)r->dtype << 24 |
           (uint64_t)r->reason << 32 | (uint64_t)(channels(r, seen) & 0xffff) << 40 | (uint64_t)(r->peer >= 0) << 56;
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

static void log_one(struct slr_profile *p, const struct slr_profile_record *r, unsigned seen)
{
    slr_log_asked("nccl",
                  "comm=%s comm_hash=%llx crank=%d nranks=%d func=%s seq=%llu call=%llu reason=%s count=%llu "
                  "dtype=%s bytes=%llu "
                  "peer=%d algo=%s proto=%s channels=%u begin=%llu end=%llu kernel_ns=%llu",
                  comm_name(p), (unsigned long long)p->hash, p->rank, p->nranks, name_of(r->func),
                  (unsigned long long)r->seq, (unsigned long long)r->call, reason_of(r->reason),
                  (unsigned long long)r->count, type_of(r->dtype), (unsigned long long)r->bytes, r->peer,
                  name_of(r->algo), name_of(r->proto), channels(r, seen), (unsigned long long)r->begin,
                  (unsigned long long)atomic_load_explicit(&r->end, memory_order_relaxed),
                  (unsigned long long)kernel_ns(r, seen));
}

/* SLIPRING_TRACE=N: every N-th call; a passed all-gather by slipring's number of it, others by
 * NCCL's. */
static bool selected(const struct slr_profile_record *r)
{
    return slr_timeline_turn(r->call ? r->call : r->seq + 1);
}

void slr_profile_count(struct slr_profile *p, struct slr_profile_record *r, unsigned seen)
{
    if (selected(r)) /* outside of the lock, as the log writes to a file */
        log_one(p, r, seen);
    pthread_mutex_lock(&p->lock);
    add(p, key_of(r, seen), r->bytes, kernel_ns(r, seen));
    pthread_mutex_unlock(&p->lock);
}

static void log_sum(struct slr_profile *p, const struct slr_profile_sum *s)
{
    uint64_t k = s->key;
    slr_log_asked("nccl_sum",
                  "comm=%s comm_hash=%llx crank=%d nranks=%d func=%s bytes=%llu dtype=%s reason=%s algo=%s proto=%s "
                  "channels=%u "
                  "calls=%llu timed=%llu min_ns=%llu mean_ns=%llu max_ns=%llu",
                  comm_name(p), (unsigned long long)p->hash, p->rank, p->nranks, name_of(k & 0xff),
                  (unsigned long long)s->bytes, type_of(k >> 24 & 0xff), reason_of(k >> 32 & 0xff),
                  name_of(k >> 8 & 0xff), name_of(k >> 16 & 0xff), (unsigned)(k >> 40 & 0xffff),
                  (unsigned long long)s->calls, (unsigned long long)s->timed,
                  (unsigned long long)(s->timed ? s->min_ns : 0),
                  (unsigned long long)(s->timed ? s->total_ns / s->timed : 0), (unsigned long long)s->max_ns);
}

void slr_profile_log_sums(struct slr_profile *p)
{
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < p->count; i++)
        log_sum(p, &p->sums[i]);
    uint64_t lost = atomic_load(&p->lost);
    if (lost || p->unsummed)
        slr_log_asked("nccl_lost", "comm=%s comm_hash=%llx crank=%d lost=%llu unsummed=%llu msg=%s", comm_name(p),
                      (unsigned long long)p->hash, p->rank, (unsigned long long)lost, (unsigned long long)p->unsummed,
                      "operations of NCCL that are in no sum: too many in flight, or too many different ones");
    /* Once: an exit may come before, or while, NCCL closes the communicator. */
    p->count = 0;
    p->unsummed = 0;
    atomic_store(&p->lost, 0);
    pthread_mutex_unlock(&p->lock);
}
