/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/verify/verify.h"

#include <string.h>

/* The table's reasons are of two kinds; those before the first of a pending gather's end say what
 * became of a call. */
static bool stays_with_nccl(int reason)
{
    return !slr_reason_moves((enum slr_reason)reason) && reason < SLR_R_FUSED;
}

static void print_reasons(FILE *out, const unsigned long long count[SLR_R_COUNT], const char *what)
{
    for (int r = 0; r < SLR_R_COUNT; r++)
        if (count[r] && stays_with_nccl(r))
            fprintf(out, "  %llu %s%s stayed with NCCL: %s (%s)\n", count[r], what, count[r] == 1 ? "" : "s",
                    slr_reason_name((enum slr_reason)r), slr_reason_doc((enum slr_reason)r));
}

static void print_difference(FILE *out, const struct difference *d)
{
    fprintf(out, "  DIFFERS: rank %lld of communicator %s (%s), call %lld: ", d->rank, d->comm, d->host, d->call);
    if (d->kind == SLR_ALL_GATHER)
        fprintf(out, "from byte %lld of the gathered buffer on, in the shard (%lld bytes) of rank %lld\n", d->offset,
                d->shard, d->owner);
    else
        fprintf(out, "byte %lld of %s%lld of %s is of the bits %s, %s %s\n", d->offset,
                d->kind == SLR_ALL_REDUCE ? "the sums, in shards of " : "the ", d->shard,
                d->kind == SLR_ALL_REDUCE ? "an all-reduce," : "a reduce-scatter", d->have,
                strcmp(d->check, "nccl") ? "the sum of what the ranks sent has"
                                         : "further from NCCL's than rounding takes it:",
                d->want);
}

static void print_differences(FILE *out, const struct tally *t)
{
    const unsigned long long all = tally_sum(t->differing);
    for (unsigned long long i = 0; i < all && i < VERIFY_LISTED; i++)
        print_difference(out, &t->first[i]);
    if (all > VERIFY_LISTED)
        fprintf(out, "  and %llu more\n", all - VERIFY_LISTED);
}

static const char *one(int kind)
{
    return kind == SLR_ALL_GATHER ? "gather" : slr_collectives[kind].words;
}

static const char *equal(int kind)
{
    return kind == SLR_ALL_GATHER ? "all bytes equal" : "all bits those of the sums in rank order, and NCCL's near";
}

/* "3 of 7 gathers DIFFER from NCCL's; 5 reduce-scatters ..." */
static void print_compared(FILE *out, const struct tally *t)
{
    const char *between = "";
    for (int k = 0; k < SLR_COLLECTIVES; k++) {
        if (!t->compared[k])
            continue;
        if (t->differing[k])
            fprintf(out, "%s%llu of %llu %s%s DIFFER from NCCL's", between, t->differing[k], t->compared[k], one(k),
                    t->compared[k] == 1 ? "" : "s");
        else
            fprintf(out, "%s%llu %s%s compared with NCCL's, %s", between, t->compared[k], one(k),
                    t->compared[k] == 1 ? "" : "s", equal(k));
        between = "; ";
    }
    fputs("\n", out);
}

static void print_verdict(FILE *out, const struct tally *t, unsigned long long every)
{
    fputs("slipring verify: ", out);
    if (!t->logs)
        fputs("no communicator was made by a process with slipring in it: nothing was compared (`slipring doctor -- "
              "COMMAND` may know why)\n",
              out);
    else if (!tally_sum(t->compared))
        fputs("nothing was compared\n", out);
    else
        print_compared(out, t);
    if (t->logs && every == 1)
        fprintf(out, "  logs of %llu process%s; every substituted call of each was compared\n", t->logs,
                t->logs == 1 ? "" : "es");
    else if (t->logs)
        fprintf(out, "  logs of %llu process%s; one in %llu of each one's substituted calls was compared\n", t->logs,
                t->logs == 1 ? "" : "es", every);
}

int verify_report(FILE *out, const struct tally *t, unsigned long long every, int status)
{
    print_verdict(out, t, every);
    print_differences(out, t);
    for (int k = 0; k < SLR_COLLECTIVES; k++)
        if (t->ended && (k == SLR_ALL_GATHER || t->calls[k]))
            fprintf(out, "  %llu of %llu %ss substituted\n", t->substituted[k], t->calls[k], slr_collectives[k].words);
    if (t->logs > t->ended)
        fprintf(out, "  %llu process%s gathered nothing, or ended too early to say how much\n", t->logs - t->ended,
                t->logs - t->ended == 1 ? "" : "es");
    print_reasons(out, t->refused, "communicator");
    for (int k = 0; k < SLR_COLLECTIVES; k++)
        print_reasons(out, t->reason[k], slr_collectives[k].words);
    if (t->skipped)
        fprintf(out, "  %llu could not be compared for want of device memory\n", t->skipped);
    if (t->unreadable)
        fprintf(out, "  %llu line%s of the logs can not be read\n", t->unreadable, t->unreadable == 1 ? "" : "s");
    if (status)
        fprintf(out, "  COMMAND ended with status %d\n", status);
    if (tally_sum(t->differing))
        return VERIFY_DIFFERS;
    return status ? status : tally_sum(t->compared) ? VERIFY_EQUAL : VERIFY_NOTHING;
}
