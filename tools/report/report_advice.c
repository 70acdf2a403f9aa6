/* SPDX-License-Identifier: Apache-2.0 */
/* What to do: only where a reason has a cure that helps. */
#include <inttypes.h>
#include <string.h>
#include "tools/report/report.h"

/* Reasons whose cure is a setting or a change of the program: X(name in reasons.def, what to do).
 * The number of calls is said in front. */
static const struct {
    const char *reason, *cure;
} cures[] = {
    {"rank_absent",
     "start every rank under `slipring run`; `slipring doctor` says what keeps one from announcing itself"},
    {"settings_differ", "give all ranks the same settings; the line settings_differ below names the one that differs"},
    {"version_differs", "use one build of slipring on all ranks"},
    {"no_ipc", "`slipring doctor` says which devices can not reach each other, and why"},
    {"no_control_block", "`slipring doctor` says whether the ranks share a pid and network namespace"},
    {"no_staging", "raise SLIPRING_CACHE_BYTES, or lower SLIPRING_SLOT_BYTES"},
    {"agreement_timeout", "raise SLIPRING_AGREE_TIMEOUT if ranks make their communicators that far apart"},
    {"below_min_bytes", "lower SLIPRING_MIN_BYTES if they matter: with SLIPRING_TRIALS the ring is then tried, and "
                        "NCCL kept where it is faster"},
    {"nonblocking", "make the communicator blocking (ncclConfig_t.blocking = 1)"},
    {"communicator_not_tracked",
     "load the library from the start of the process, so that it sees the communicator made"},
    {"strict", "SLIPRING_STRICT=off lets GEMMs start part by part; the last bits of results can differ then"},
    {"fuse_off", "SLIPRING_FUSE=on lets GEMMs start part by part"},
    {"gemm_leading_dimension", "gather into a buffer without padding between columns (ld = k)"},
    {"gemm_transpose", "gather what is operand B with op N or operand A with op T"},
    {"gemm_shape", "make the gathered dimension a multiple of the number of ranks"},
    {"gemm_epilogue", "keep bias gradients out of the GEMM that reads a gathered buffer, if that is possible"},
    {"gemm_attribute", "the log's joined line names the attribute: scale factors by tensor or by row can be split, a "
                       "largest value can not"},
    {"gemm_batch", "use one GEMM over the gathered buffer instead of a batch"},
    {"gemm_overlap", "give C a buffer of its own: it must not touch what is being gathered or sent"},
    {"verify", "SLIPRING_VERIFY=0 once the results are trusted: a compared call synchronises its stream"},
    {"per_thread_default_stream", "use a stream of your own: a per-thread default stream is joined at once"},
};

static void advise_reasons(struct report *r)
{
    for (size_t i = 0; i < sizeof cures / sizeof *cures; i++) {
        uint64_t n = report_count(r, cures[i].reason);
        if (n)
            out_item(r->o, "%s (%" PRIu64 " calls of all ranks): %s.", cures[i].reason, n, cures[i].cure);
    }
}

/* The calls that a communicator refused have no count of the communicator's reason when the log
 * ended early. */
static void advise_communicators(struct report *r)
{
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        const struct member *b = &r->m->members.at[c->members.at[0]];
        for (size_t k = 0; k < sizeof cures / sizeof *cures && !b->ring && b->reason; k++)
            if (strcmp(cures[k].reason, b->reason) == 0 && report_count(r, b->reason) == 0)
                out_item(r->o, "Communicator %s stays with NCCL, %s: %s.", c->name, b->reason, cures[k].cure);
    }
}

static const char *seen_by(const struct report *r, const struct site *s, const char *reason)
{
    const struct comm *c = &r->m->comms.at[s->comm];
    for (size_t k = 0; k < c->members.n; k++) {
        const struct member *b = &r->m->members.at[c->members.at[k]];
        for (size_t i = 0; i < b->shapes.n; i++)
            if (b->shapes.at[i].event == E_JOINED && b->shapes.at[i].shard == s->shard &&
                strcmp(b->shapes.at[i].reason, reason) == 0)
                return b->shapes.at[i].by;
    }
    return NULL;
}

/* A site most of whose gathers are waited for by something that is no GEMM. */
static void advise_joins(struct report *r)
{
    for (size_t i = 0; i < r->sites.list.n; i++) {
        const struct site *s = &r->sites.list.at[i];
        char label[80], buf[FORM_ROOM];
        uint64_t all = 0;
        for (size_t k = 0; k < s->ended.n; k++)
            all += s->ended.at[k].n;
        for (size_t k = 0; k < s->ended.n; k++) {
            const struct reason_count *e = &s->ended.at[k];
            const char *by = seen_by(r, s, e->reason);
            bool host = strcmp(e->reason, "host_observes") == 0, other = strcmp(e->reason, "other_operation") == 0;
            if ((!host && !other) || e->n * 2 < all || s->exposed_median < 20000)
                continue;
            site_label(&r->sites, i, label, sizeof label);
            out_item(
                r->o,
                "%s: %s%.40s comes between the gather and the GEMM, and waits %s each time. Move it behind the GEMM, "
                "or onto another buffer and stream.",
                label, host ? "the host's " : "",
                by     ? by
                : host ? "wait"
                       : "an operation",
                form_time(buf, (double)s->exposed_median));
        }
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
    advise_joins(r);
    advise_memory(r);
    report_scatter_advice(r);
    if (r->o->items == 0)
        out_say(r->o, "Nothing here suggests a change.");
}
