/* SPDX-License-Identifier: Apache-2.0 */
#include "base/counters.h"
#include "base/log.h"
#include "base/settings.h"

struct slr_counters slr_counters;

_Static_assert(SLR_R_JOIN_OTHER_OP == SLR_R_FUSED + 1, "reasons of joins follow \"fused\" and end the table");

#define C(member) atomic_load_explicit(&slr_counters.member, memory_order_relaxed)

static uint64_t joined(void)
{
    uint64_t sum = 0;
    for (int r = SLR_R_JOIN_OTHER_OP; r < SLR_R_COUNT; r++)
        sum += C(of[SLR_ALL_GATHER].by_reason[r]);
    return sum;
}

static uint64_t passed(void)
{
    uint64_t substituted = C(of[SLR_ALL_GATHER].moved), gathers = C(of[SLR_ALL_GATHER].calls);
    /* Another thread may be between counting the one and the other. */
    return gathers > substituted ? gathers - substituted : 0;
}

void slr_counters_total(struct slr_totals *t)
{
#define X(name, value, doc) t->name = value;
#include "base/counters.def"
#undef X
}

static void log_totals(const struct slr_totals *t, bool end)
{
    static const char form[] =
#define X(name, value, doc) #name "=%llu "
#include "base/counters.def"
#undef X
        ;
#define X(name, value, doc) , (unsigned long long)t->name
    slr_log(SLR_LOG_INFO, end ? "summary" : "totals", form
#include "base/counters.def"
    );
#undef X
}

void slr_count_call(const struct slr_collective *kind, uint64_t bytes, enum slr_reason why)
{
    struct slr_counted *of = &slr_counters.of[kind->id];
    const bool moved = slr_reason_moves(why);
    atomic_fetch_add_explicit(&of->calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&of->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&of->moved, moved, memory_order_relaxed);
    atomic_fetch_add_explicit(&of->moved_bytes, moved ? bytes : 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&of->by_reason[why], 1, memory_order_relaxed);
}

static uint64_t calls(void)
{
    uint64_t sum = 0;
    for (int id = 0; id < SLR_COLLECTIVES; id++)
        sum += C(of[id].calls);
    return sum;
}

static void log_counts(bool end)
{
    struct slr_totals t;
    slr_counters_total(&t);
    if (calls() == 0 || !slr_log_enabled(SLR_LOG_INFO))
        return;
    log_totals(&t, end);
    for (int id = 0; id < SLR_COLLECTIVES; id++)
        for (int r = 0; r < SLR_R_COUNT; r++) {
            const unsigned long long n = C(of[id].by_reason[r]);
            if (n > 0)
                slr_log(SLR_LOG_INFO, slr_collectives[id].count, "reason=%s n=%llu", slr_reason_name(r), n);
        }
}

void slr_counters_log(void)
{
    log_counts(true);
}

void slr_counters_tick(uint64_t now)
{
    enum { FIRST_MS = 10000, MOST_MS = 60000 };
    static uint64_t next, told;
    static unsigned pause;
    if (next && now < next)
        return;
    const uint64_t made = calls();
    if (next && made != told)
        log_counts(false);
    told = made;
    pause = !pause ? FIRST_MS : 2 * pause < MOST_MS ? 2 * pause : MOST_MS;
    next = now + pause;
}

const struct slr_collective slr_collectives[SLR_COLLECTIVES] = {
#define X(id, ...) {SLR_##id, __VA_ARGS__},
#include "base/collectives.def"
#undef X
};
