/* SPDX-License-Identifier: Apache-2.0 */
/* What to do: only where a reason has a cure that helps. */
#include <inttypes.h>
#include <string.h>
#include "base/reason.h"
#include "tools/report/report.h"

/* The number of calls is said in front. */
static void advise_reasons(struct report *r)
{
    for (int i = 0; i < SLR_R_COUNT; i++) {
        const char *name = slr_reason_name((enum slr_reason)i), *cure = slr_reason_cure((enum slr_reason)i);
        uint64_t n = report_count(r, name);
        if (n && cure)
            out_item(r->o, "%s (%" PRIu64 " calls of all ranks): %s.", name, n, cure);
    }
}

/* The calls that a communicator refused have no count of the communicator's reason when the log
 * ended early. */
static void advise_communicators(struct report *r)
{
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        const struct member *b = &r->m->members.at[c->members.at[0]];
        const char *cure = !b->ring && b->reason ? reason_cure(b->reason) : NULL;
        if (cure && report_count(r, b->reason) == 0)
            out_item(r->o, "Communicator %s stays with NCCL, %s: %s.", c->name, b->reason, cure);
    }
}

static void advise_memory(struct report *r)
{
    double staged = report_sum(r, F_STAGED), direct = report_sum(r, F_ZERO_COPY) + report_sum(r, F_PUSHED);
    if (staged > 2 * direct && staged > 100)
        out_item(r->o,
                 "%.0f of %.0f shards were copied into a slot first. They are used where they lie when the buffers "
                 "come from "
                 "cudaMalloc (SLIPRING_ALLOC_MIN bytes or more), or are registered with NCCL (ncclCommRegister), or "
                 "come from ncclMemAlloc.",
                 staged, staged + direct);
    for (size_t i = 0; i < r->run->processes.n; i++)
        if (r->m->processes.at[r->run->processes.at[i]].summary[F_EVICTIONS] > 0) {
            out_item(r->o, "Kept blocks had to go for others: raise SLIPRING_ALLOC_BYTES if device memory allows it.");
            return;
        }
}

void report_advice(struct report *r)
{
    out_section(r->o, "advice", "What to do");
    advise_reasons(r);
    advise_communicators(r);
    advise_readings(r);
    advise_joins(r);
    advise_memory(r);
    report_scatter_advice(r);
    if (r->o->items == 0)
        out_say(r->o, "Nothing here suggests a change.");
}
