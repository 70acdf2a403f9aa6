/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured, as lines of the log (docs/tracing.md). Only the reader is here, one at a time. */
#include "base/counters.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/status.h"
#include "plugin/comm/comm.h"
#include "plugin/timeline/timeline_impl.h"
#include "plugin/abi/nccl_common.h"

/* For %llu. */
static unsigned long long llu(uint64_t n)
{
    return n;
}

void slr_timeline_say_start(const struct slr_comm *c, const struct slr_timeline *timeline)
{
    char name[128] = "?";
    slr_real.cuDeviceGetName(name, sizeof name, timeline->device);
    slr_log_asked("trace_start", "comm=%s crank=%d nranks=%d device=%d name=%s every=%llu", c->name, c->rank, c->nranks,
                  (int)timeline->device, name, llu(slr_get(SLR_S_TRACE)));
}

static unsigned waiting(const struct slr_timeline *timeline)
{
    unsigned n = 0;
    for (const struct slr_timed *m = timeline->closed; m; m = m->next)
        n++;
    return n;
}

void slr_timeline_say_end(const struct slr_comm *c, struct slr_timeline *timeline)
{
    if (timeline->ended)
        return;
    timeline->ended = true;
    pthread_mutex_lock(&timeline->lock);
    unsigned unfinished = waiting(timeline);
    pthread_mutex_unlock(&timeline->lock);
    slr_log_asked(
        "trace_end",
        "comm=%s crank=%d sampled=%llu written=%llu dropped=%llu failed=%llu unfinished=%u error=%llu rate=%.6f",
        c->name, c->rank, llu(timeline->sampled), llu(timeline->written), llu(timeline->dropped), llu(timeline->failed),
        unfinished, llu(timeline->told_error), timeline->clock.rate);
}

/* The bound of the clock's error, when it is first known and whenever it has become a quarter larger. */
static void say_clock(const struct slr_comm *c, struct slr_timeline *timeline, uint64_t error)
{
    /* So a clock that drifts costs a few lines in a run, and not one for each call. */
    if (error <= timeline->told_error + timeline->told_error / 4)
        return;
    timeline->told_error = error;
    slr_log_asked("clock", "comm=%s crank=%d error=%llu rate=%.6f", c->name, c->rank, llu(error), timeline->clock.rate);
}

/* A record with its times in the host's clock. */
struct reading {
    const struct slr_comm *c;
    const struct slr_timed *m;
    uint64_t *at;
    uint64_t error; /* of any of them */
    uint64_t begin, end, exposed;
};

static bool read_times(const struct slr_timeline *timeline, struct reading *r)
{
    const struct slr_timing *rec = &r->m->timing;
    for (unsigned i = 0; i < rec->stamps; i++) {
        /* An event knows only its distance to another event; the clock turns that into host time. */
        uint64_t error = 0;
        if (slr_device_clock_time(&timeline->clock, rec->event[i], &r->at[i], &error) != CUDA_SUCCESS)
            return false;
        r->error = error > r->error ? error : r->error;
    }
    return rec->stamps > 0;
}

/* Whether the gather's own data is on its way in this span: the last of them ends with the last byte. */
static bool brings(const struct slr_timed_span *s)
{
    return s->kind == SLR_SPAN_OWN || s->kind == SLR_SPAN_NCCL || (s->track == SLR_TRACK_PULL && s->peer >= 0);
}

/* The GEMM, and what the ring's streams wait for before the call, are not the call's. It begins
 * with the first part that travels, or where the application's stream comes to it, and ends with the
 * last sum, or with the last that is copied. The stream stands still from there to its join, behind all of the GEMM. */
static void sum_up_scatter(struct reading *r)
{
    const struct slr_timing *rec = &r->m->timing;
    r->begin = UINT64_MAX;
    r->end = 0;
    for (unsigned i = 0; i < rec->spans; i++) {
        const struct slr_timed_span *s = &rec->span[i];
        const uint64_t begin = r->at[s->begin], end = r->at[s->end];
        const bool stands = s->track == SLR_TRACK_APP && s->kind == SLR_SPAN_WAIT;
        if ((stands || s->kind == SLR_SPAN_PUSH) && begin < r->begin)
            r->begin = begin;
        if ((s->kind == SLR_SPAN_SUM || s->kind == SLR_SPAN_PULL) && end > r->end)
            r->end = end;
        if (stands)
            r->exposed += end - begin;
    }
    r->begin = r->begin != UINT64_MAX ? r->begin : r->end; /* cut: see `cut` */
    r->end = r->end > r->begin ? r->end : r->begin;
}

static void sum_up(struct reading *r)
{
    const struct slr_timing *rec = &r->m->timing;
    if (r->m->kind == SLR_TIMED_SCATTER) {
        sum_up_scatter(r);
        return;
    }
    /* The first stamp is the application's stream's; the ring's streams wait for what stood before
     * the call there, and may come to their first stamp earlier. */
    r->begin = r->at[0];
    r->end = 0;
    for (unsigned i = 0; i < rec->spans; i++) {
        const struct slr_timed_span *s = &rec->span[i];
        uint64_t begin = r->at[s->begin], end = r->at[s->end];
        r->begin = begin < r->begin ? begin : r->begin;
        if (brings(s) && end > r->end)
            r->end = end;
        /* While it waits, and while NCCL works on it, the application's stream computes nothing. */
        if (s->track == SLR_TRACK_APP && (s->kind == SLR_SPAN_WAIT || s->kind == SLR_SPAN_NCCL))
            r->exposed += end - begin;
    }
    r->end = r->end > r->begin ? r->end : r->begin; /* within the error of the clock */
}

static const char *decision(const struct slr_timed *m)
{
    return m->kind == SLR_TIMED_PASS ? "pass" : "ring";
}

static void count(const struct reading *r)
{
    const uint64_t time = r->end - r->begin;
    atomic_fetch_add(&slr_counters.traced_ns, time);
    atomic_fetch_add(&slr_counters.traced_hidden_ns, time > r->exposed ? time - r->exposed : 0);
}

static void write_gather(const struct reading *r)
{
    const struct slr_comm *c = r->c;
    const struct slr_timed *m = r->m;
    if (m->kind == SLR_TIMED_RING)
        count(r);
    slr_log_asked("gather",
                  "comm=%s crank=%d call=%llu decision=%s reason=%s shard=%zu context=%llx count=%zu dtype=%s "
                  "in_place=%d stream=%p recv=%p send=%p pieces=%u chunks=%u slot=%u place=%u push=%u begin=%llu "
                  "end=%llu ended=%s exposed=%llu spans=%u cut=%u error=%llu",
                  c->name, c->rank, llu(m->number), decision(m), slr_reason_name(m->reason), m->shard, llu(m->context),
                  m->count, slr_type_name(m->type), (int)m->in_place, (void *)m->stream, m->recv, m->send, m->pieces,
                  m->chunks, m->deliveries[SLR_BY_SLOT], m->deliveries[SLR_ZERO_COPY] + m->deliveries[SLR_AS_EXPECTED],
                  m->deliveries[SLR_CORRECTED], llu(r->begin), llu(r->end),
                  m->kind == SLR_TIMED_RING ? slr_reason_name(m->ended) : "-", llu(r->exposed), m->timing.spans,
                  m->timing.cut, llu(r->error));
}

static void write_scatter(const struct reading *r)
{
    const struct slr_comm *c = r->c;
    const struct slr_timed *m = r->m;
    slr_log_asked(
        "scatter",
        "op=%s comm=%s crank=%d call=%llu decision=%s reason=%s shard=%zu context=%llx count=%zu dtype=%s in_place=%d "
        "stream=%p recv=%p send=%p pieces=%u parts=%u begin=%llu end=%llu ended=%s exposed=%llu spans=%u cut=%u "
        "error=%llu",
        m->what->op, c->name, c->rank, llu(m->number), decision(m), slr_reason_name(m->reason), m->shard,
        llu(m->context), m->count, slr_type_name(m->type), (int)m->in_place, (void *)m->stream, m->recv, m->send,
        m->pieces, m->chunks, llu(r->begin), llu(r->end), m->ended == SLR_R_FUSED ? slr_reason_name(m->ended) : "whole",
        llu(r->exposed), m->timing.spans, m->timing.cut, llu(r->error));
}

static void write_span(const struct reading *r, const struct slr_timed_span *s)
{
    slr_log_asked(
        "span", "comm=%s crank=%d call=%llu decision=%s lane=%s kind=%s begin=%llu end=%llu peer=%d piece=%d bytes=%zu",
        r->c->name, r->c->rank, llu(r->m->number), decision(r->m), slr_span_track_name(s->track),
        slr_span_name(s->kind), llu(r->at[s->begin]), llu(r->at[s->end]), s->peer, s->piece, s->bytes);
}

static void write_other(const struct reading *r)
{
    const struct slr_timed *m = r->m;
    slr_log_asked("collective",
                  "comm=%s crank=%d func=%s seq=%llu count=%zu dtype=%s bytes=%zu stream=%p begin=%llu end=%llu "
                  "error=%llu",
                  r->c->name, r->c->rank, m->func, llu(m->number), m->count, slr_type_name(m->type),
                  m->count * slr_type_bytes(m->type), (void *)m->stream, llu(r->begin), llu(r->end), llu(r->error));
}

static void write_lines(const struct reading *r)
{
    if (r->m->kind == SLR_TIMED_OTHER) {
        write_other(r);
        return;
    }
    if (r->m->kind == SLR_TIMED_SCATTER)
        write_scatter(r);
    else
        write_gather(r);
    for (unsigned i = 0; i < r->m->timing.spans; i++)
        write_span(r, &r->m->timing.span[i]);
}

/* True: it is done with. */
static bool read_one(struct slr_comm *c, struct slr_timeline *timeline, const struct slr_timed *m)
{
    struct reading r = {.c = c, .m = m, .at = timeline->at};
    /* Of a broken record an event was not made or not recorded: there is nothing to ask for. */
    CUresult q = m->timing.broken ? CUDA_ERROR_INVALID_VALUE : slr_timing_query(&m->timing);
    bool failed = atomic_load(&c->error) != ncclSuccess;
    /* A failed communicator's waits were released: its events are not waited for, and not believed. */
    if (q == CUDA_ERROR_NOT_READY && !failed)
        return false;
    bool known = q == CUDA_SUCCESS && !failed && read_times(timeline, &r);
    if (known) {
        sum_up(&r);
        say_clock(c, timeline, r.error);
        write_lines(&r);
    }
    *(known ? &timeline->written : &timeline->failed) += 1;
    return true;
}

static struct slr_timed *oldest(struct slr_timeline *timeline)
{
    pthread_mutex_lock(&timeline->lock);
    struct slr_timed *m = timeline->closed;
    pthread_mutex_unlock(&timeline->lock);
    return m;
}

/* The reader alone takes records off, so the oldest one is still the first. */
static void take_off(struct slr_timeline *timeline, struct slr_timed *m)
{
    pthread_mutex_lock(&timeline->lock);
    timeline->closed = m->next;
    if (!timeline->closed)
        timeline->closed_end = &timeline->closed;
    timeline->taken--;
    m->next = timeline->free;
    timeline->free = m;
    pthread_mutex_unlock(&timeline->lock);
}

void slr_timeline_read(struct slr_comm *c, struct slr_timeline *timeline, bool last)
{
    /* Until the clock has a base, no event's time can be told: the records wait. */
    if (!oldest(timeline) || !(last ? slr_device_clock_insist : slr_device_clock_look)(&timeline->clock))
        return;
    /* None overtakes: one that is not complete keeps those behind it for the next look. */
    for (struct slr_timed *m; (m = oldest(timeline)) && read_one(c, timeline, m);)
        take_off(timeline, m);
}
