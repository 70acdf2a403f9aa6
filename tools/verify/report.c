/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/verify/verify.h"

/* The table's reasons are of two kinds; those before the first of a pending gather's end say what
 * became of a call. */
static bool stays_with_nccl(int reason)
{
    return reason != SLR_R_RING && reason < SLR_R_FUSED;
}

static void print_reasons(FILE *out, const unsigned long long count[SLR_R_COUNT], const char *what)
{
    for (int r = 0; r < SLR_R_COUNT; r++)
        if (count[r] && stays_with_nccl(r))
            fprintf(out, "  %llu %s stayed with NCCL: %s (%s)\n", count[r], what, slr_reason_name((enum slr_reason)r),
                    slr_reason_doc((enum slr_reason)r));
}

static void print_differences(FILE *out, const struct tally *t)
{
    for (unsigned long long i = 0; i < t->differing && i < VERIFY_LISTED; i++) {
        const struct difference *d = &t->first[i];
        fprintf(
            out,
            "  DIFFERS: rank %lld of communicator %s (%s), call %lld: from byte %lld of the gathered buffer on, in the "
            "shard (%lld bytes) of rank %lld\n",
            d->rank, d->comm, d->host, d->call, d->offset, d->shard, d->owner);
    }
    if (t->differing > VERIFY_LISTED)
        fprintf(out, "  and %llu more\n", t->differing - VERIFY_LISTED);
}

static void print_verdict(FILE *out, const struct tally *t, unsigned long long every)
{
    fputs("slipring verify: ", out);
    if (!t->logs)
        fputs("no communicator was made by a process with slipring in it: nothing was compared (`slipring doctor -- "
              "COMMAND` may know why)\n",
              out);
    else if (!t->compared)
        fputs("nothing was compared\n", out);
    else if (t->differing)
        fprintf(out, "%llu of %llu gathers DIFFER from NCCL's\n", t->differing, t->compared);
    else
        fprintf(out, "%llu gathers compared with NCCL's, all bytes equal\n", t->compared);
    if (t->logs && every == 1)
        fprintf(out, "  logs of %llu processes; every substituted gather of each was compared\n", t->logs);
    else if (t->logs)
        fprintf(out, "  logs of %llu processes; one in %llu of each one's substituted gathers was compared\n", t->logs,
                every);
}

int verify_report(FILE *out, const struct tally *t, unsigned long long every, int status)
{
    print_verdict(out, t, every);
    print_differences(out, t);
    if (t->ended)
        fprintf(out, "  %llu of %llu all-gathers substituted\n", t->substituted, t->calls);
    if (t->logs > t->ended)
        fprintf(out, "  %llu processes gathered nothing, or ended before they could say how much\n",
                t->logs - t->ended);
    print_reasons(out, t->refused, "ranks' communicators");
    print_reasons(out, t->reason, "all-gathers");
    if (t->skipped)
        fprintf(out, "  %llu were not compared for want of device memory\n", t->skipped);
    if (t->unreadable)
        fprintf(out, "  %llu lines of the logs can not be read\n", t->unreadable);
    if (status)
        fprintf(out, "  COMMAND ended with status %d\n", status);
    if (t->differing)
        return VERIFY_DIFFERS;
    return status ? status : t->compared ? VERIFY_EQUAL : VERIFY_NOTHING;
}
