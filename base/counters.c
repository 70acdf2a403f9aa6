/* SPDX-License-Identifier: Apache-2.0 */
#include "base/counters.h"
#include "base/log.h"

struct slr_counters slr_counters;

_Static_assert(SLR_R_JOIN_OTHER_OP == SLR_R_FUSED + 1, "reasons of joins follow \"fused\" and end the table");

#define C(member) atomic_load_explicit(&slr_counters.member, memory_order_relaxed)

static uint64_t joined(void)
{
    uint64_t sum = 0;
    for (int r = SLR_R_JOIN_OTHER_OP; r < SLR_R_COUNT; r++)
        sum += C(by_reason[r]);
    return sum;
}

static uint64_t passed(void)
{
    uint64_t substituted = C(substituted), gathers = C(gathers);
    /* Another thread may be between counting the one and the other. */
    return gathers > substituted ? gathers - substituted : 0;
}

void slr_counters_total(struct slr_totals *t)
{
#define X(name, value, doc) t->name = value;
#include "base/counters.def"
#undef X
}

static void log_summary(const struct slr_totals *t)
{
    static const char form[] =
#define X(name, value, doc) #name "=%llu "
#include "base/counters.def"
#undef X
        ;
#define X(name, value, doc) , (unsigned long long)t->name
    slr_log(SLR_LOG_INFO, "summary", form
#include "base/counters.def"
    );
#undef X
}

void slr_counters_log(void)
{
    struct slr_totals t;
    slr_counters_total(&t);
    if ((t.calls == 0 && t.scatters == 0) || !slr_log_enabled(SLR_LOG_INFO))
        return;
    log_summary(&t);
    for (int r = 0; r < SLR_R_COUNT; r++) {
        unsigned long long n = C(by_reason[r]), scatters = C(scatters_by_reason[r]);
        if (n > 0)
            slr_log(SLR_LOG_INFO, "count", "reason=%s n=%llu", slr_reason_name(r), n);
        if (scatters > 0)
            slr_log(SLR_LOG_INFO, "scatter_count", "reason=%s n=%llu", slr_reason_name(r), scatters);
    }
}
