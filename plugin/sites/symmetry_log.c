/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/sites/symmetry_log.h"

#include "base/log.h"
#include "plugin/callers/callers.h"

/* The bounds that symmetry_log.h tells. */
enum { PHASE_LINES = 16, CHANGE_LINES = 256, SIDE_LINES = 3, SITE_LINES = 64 };

typedef unsigned long long ull;

/* How every line of a site's buffer begins. */
#define HEAD "op=%s comm=%s crank=%d phase=%llu site=%u shard=%llu buffer=%s state=%s "
#define HEAD_OF(p, i, side)                                                                                            \
    (p)->sites.site[i].scatter ? "reducescatter" : "allgather", (p)->comm, (p)->crank, (ull)(p)->phases, (i),          \
        (ull)(p)->sites.site[i].shard, buffer_name((p), (i), (side)),                                                  \
        slr_site_state_name((p)->sites.site[i].side[side].found.state)

/* In the order of enum slr_evidence. */
static const char *evidence_name(enum slr_evidence by)
{
    static const char *const names[] = {"nothing", "places", "sizes"};
    return names[by];
}

static const char *buffer_name(const struct slr_phases *p, unsigned i, enum slr_side side)
{
    if (p->sites.site[i].in_place)
        return "both";
    return side == SLR_RECV ? "recv" : "send";
}

void slr_symmetry_log_phase(const struct slr_phases *p)
{
    if (p->phases <= PHASE_LINES)
        slr_log(SLR_LOG_INFO, "symmetry_phase", "comm=%s crank=%d phase=%llu first=%llu period=%u by=%s", p->comm,
                p->crank, (ull)p->phases, (ull)p->first, p->length, evidence_name(p->by));
}

/* Of the first rank, which stands for all where they are alike. */
static const struct slr_where *place_of(const struct slr_phases *p, unsigned i, enum slr_side side)
{
    return &p->sites.last[(size_t)i * (size_t)p->nranks].at[side];
}

void slr_symmetry_log_change(struct slr_phases *p, unsigned i, enum slr_side side, uint64_t call)
{
    const struct slr_site_side *s = &p->sites.site[i].side[side];
    const struct slr_finding *f = &s->found;
    const struct slr_where *w = place_of(p, i, side);
    /* A buffer that moves every time would fill the log; its count is in the last line. */
    if (s->changes > SIDE_LINES || p->lines >= CHANGE_LINES)
        return;
    p->lines++;
    /* Where all are, or who is not there. */
    if (f->state == SLR_SITE_SYMMETRIC)
        slr_log(SLR_LOG_INFO, "symmetry", HEAD "call=%llu since=%llu ordinal=%u size=%llu offset=%llu",
                HEAD_OF(p, i, side), (ull)call, (ull)s->since, w->ordinal, (ull)w->size, (ull)w->offset);
    else
        slr_log(SLR_LOG_INFO, "symmetry",
                HEAD "call=%llu since=%llu odd_rank=%d odd_ranks=%d what=%s value=%llu expected=%llu like_rank=%d",
                HEAD_OF(p, i, side), (ull)call, (ull)s->since, f->odd_rank, f->odd_ranks, slr_difference_name(f->what),
                (ull)f->value, (ull)f->expected, f->like_rank);
}

void slr_symmetry_log_caller(struct slr_phases *p, unsigned i, uint64_t call, uint64_t caller)
{
    const struct slr_site *site = &p->sites.site[i];
    char text[SLR_CALLER_TEXT];
    if (p->phases > PHASE_LINES || !slr_caller_text(caller, text))
        return;
    const char *fresh = slr_site_called_from(&p->sites, i, text);
    if (fresh)
        slr_log(SLR_LOG_INFO, "caller_site", "op=%s comm=%s crank=%d phase=%llu site=%u shard=%llu call=%llu caller=%s",
                site->scatter ? "reducescatter" : "allgather", p->comm, p->crank, (ull)p->phases, i, (ull)site->shard,
                (ull)call, fresh);
}

/* The state at the end with whole counts, as lines of changes may have stopped at their bounds. */
static void log_side(const struct slr_phases *p, unsigned i, enum slr_side side)
{
    const struct slr_site *site = &p->sites.site[i];
    const struct slr_site_side *s = &site->side[side];
    const struct slr_where *w = place_of(p, i, side);
    if (s->found.state == SLR_SITE_SYMMETRIC)
        slr_log(SLR_LOG_INFO, "symmetry_site",
                HEAD "calls=%llu since=%llu breaks=%llu moves=%llu ordinal=%u size=%llu offset=%llu",
                HEAD_OF(p, i, side), (ull)site->calls, (ull)s->since, (ull)s->breaks, (ull)s->moves, w->ordinal,
                (ull)w->size, (ull)w->offset);
    else
        slr_log(SLR_LOG_INFO, "symmetry_site",
                HEAD "calls=%llu since=%llu breaks=%llu moves=%llu odd_rank=%d odd_ranks=%d what=%s",
                HEAD_OF(p, i, side), (ull)site->calls, (ull)s->since, (ull)s->breaks, (ull)s->moves, s->found.odd_rank,
                s->found.odd_ranks, slr_difference_name(s->found.what));
}

void slr_symmetry_log_end(const struct slr_phases *p, unsigned symmetric, uint64_t breaks)
{
    unsigned listed = p->sites.count < SITE_LINES ? p->sites.count : SITE_LINES;
    for (unsigned i = 0; i < listed; i++)
        for (enum slr_side side = SLR_RECV; side < SLR_SIDES; side++)
            if (side == SLR_RECV || !p->sites.site[i].in_place)
                log_side(p, i, side);
    slr_log(SLR_LOG_INFO, "symmetry_end",
            "comm=%s crank=%d calls=%llu skipped=%llu phases=%llu period=%u by=%s first=%llu sites=%u symmetric=%u "
            "breaks=%llu not_listed=%u",
            p->comm, p->crank, (ull)p->calls, (ull)p->skipped, (ull)p->phases, p->length, evidence_name(p->by),
            (ull)p->first, p->sites.count, symmetric, (ull)breaks, p->sites.count - listed);
}
