#include "base/counters.h"
#include "base/log.h"

struct slr_counters slr_counters;

_Static_assert(SLR_R_JOIN_OTHER_OP == SLR_R_FUSED + 1, "reasons of joins follow \"fused\" and end the table");

static unsigned long long get(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static unsigned long long joined(void)
{
    unsigned long long sum = 0;
    for (int r = SLR_R_JOIN_OTHER_OP; r < SLR_R_COUNT; r++)
        sum += get(&slr_counters.by_reason[r]);
    return sum;
}

void slr_counters_log(void)
{
    struct slr_counters *c = &slr_counters;
    unsigned long long gathers = get(&c->gathers), substituted = get(&c->substituted);
    if (gathers == 0 || !slr_log_enabled(SLR_LOG_INFO))
        return;
    /* The counters are not one snapshot: a thread may still be between two of them. */
    unsigned long long passed = gathers > substituted ? gathers - substituted : 0;
    slr_log(SLR_LOG_INFO, "summary",
            "calls=%llu bytes=%llu substituted=%llu substituted_bytes=%llu passed=%llu fused=%llu gemm_chunks=%llu "
            "joined=%llu staged=%llu in_place=%llu pushed=%llu mapped=%llu verified=%llu verify_bad=%llu "
            "sites=%llu sites_symmetric=%llu sites_broken=%llu",
            gathers, get(&c->bytes), substituted, get(&c->substituted_bytes), passed, get(&c->by_reason[SLR_R_FUSED]),
            get(&c->gemms_chunks), joined(), get(&c->staged), get(&c->in_place), get(&c->pushed), get(&c->mapped),
            get(&c->verified), get(&c->verify_bad), get(&c->sites), get(&c->sites_symmetric), get(&c->sites_broken));
    for (int r = 0; r < SLR_R_COUNT; r++) {
        unsigned long long n = get(&c->by_reason[r]);
        if (n > 0)
            slr_log(SLR_LOG_INFO, "count", "reason=%s n=%llu", slr_reason_name(r), n);
    }
}
