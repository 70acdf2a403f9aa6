/* What was measured, as lines of the log. */
#include "base/cu.h"
#include "base/log.h"
#include "plugin/timeline/timeline_impl.h"
#include "plugin/util/nccl_type.h"

static unsigned long long llu(uint64_t n)
{
    return n;
}

void slr_timeline_say_start(const struct slr_comm *c, const struct slr_timeline *t)
{
    char name[128] = "?";
    slr_real.cuDeviceGetName(name, sizeof name, t->device);
    slr_log_asked("trace_start", "comm=%s crank=%d nranks=%d device=%d name=%s every=%llu", c->name, c->rank, c->nranks,
                  (int)t->device, name, llu(slr_get(SLR_S_TRACE)));
}

static unsigned waiting(const struct slr_timeline *t)
{
    unsigned n = 0;
    for (const struct slr_timed *m = t->closed; m; m = m->next)
        n++;
    return n;
}

void slr_timeline_say_end(const struct slr_comm *c, struct slr_timeline *t)
{
    if (t->ended)
        return;
    t->ended = true;
    pthread_mutex_lock(&t->lock);
    unsigned left = waiting(t);
    pthread_mutex_unlock(&t->lock);
    slr_log_asked(
        "trace_end",
        "comm=%s crank=%d sampled=%llu written=%llu dropped=%llu failed=%llu unfinished=%u error=%llu rate=%.6f",
        c->name, c->rank, llu(t->sampled), llu(t->written), llu(t->dropped), llu(t->failed), left, llu(t->told_error),
        t->clock.rate);
}

/* The bound of the clock's error, when it is first known and whenever it has become a quarter larger. */
static void say_clock(const struct slr_comm *c, struct slr_timeline *t, uint64_t error)
{
    if (error <= t->told_error + t->told_error / 4)
        return;
    t->told_error = error;
    slr_log_asked("clock", "comm=%s crank=%d error=%llu rate=%.6f", c->name, c->rank, llu(error), t->clock.rate);
}

/* A record with its times in the host's clock. */
struct reading {
    const struct slr_comm *c;
    const struct slr_timed *m;
    uint64_t *at;
    uint64_t error; /* of any of them */
    uint64_t begin, end, exposed;
};

static bool read_times(const struct slr_timeline *t, struct reading *r)
{
    const struct slr_timing *rec = &r->m->timing;
    for (unsigned i = 0; i < rec->stamps; i++) {
        uint64_t error = 0;
        if (slr_device_clock_time(&t->clock, rec->event[i], &r->at[i], &error) != CUDA_SUCCESS)
            return false;
        r->error = error > r->error ? error : r->error;
    }
    return rec->stamps > 0;
}

/* Whether the gather's own data is on its way in this span: the last of them ends with the last byte. */
static bool brings(const struct slr_timed_span *s)
{
    return s->kind == SLR_SPAN_OWN || s->kind == SLR_SPAN_NCCL || (s->lane == SLR_LANE_PULL && s->peer >= 0);
}

static void sum_up(struct reading *r)
{
    const struct slr_timing *rec = &r->m->timing;
    r->begin = r->at[0]; /* of a stream that may lag behind the ring's, which wait for what stood before it */
    r->end = 0;
    for (unsigned i = 0; i < rec->spans; i++) {
        const struct slr_timed_span *s = &rec->span[i];
        uint64_t begin = r->at[s->begin], end = r->at[s->end];
        r->begin = begin < r->begin ? begin : r->begin;
        if (brings(s) && end > r->end)
            r->end = end;
        if (s->lane == SLR_LANE_APP && (s->kind == SLR_SPAN_WAIT || s->kind == SLR_SPAN_NCCL))
            r->exposed += end - begin;
    }
    r->end = r->end > r->begin ? r->end : r->begin;
}

static const char *decision(const struct slr_timed *m)
{
    return m->kind == SLR_TIMED_RING ? "ring" : "pass";
}

static void write_gather(const struct reading *r)
{
    const struct slr_comm *c = r->c;
    const struct slr_timed *m = r->m;
    slr_log_asked("gather",
                  "comm=%s crank=%d call=%llu decision=%s reason=%s shard=%zu count=%zu dtype=%s in_place=%d stream=%p "
                  "recv=%p send=%p pieces=%u chunks=%u slot=%u place=%u push=%u begin=%llu end=%llu ended=%s "
                  "exposed=%llu spans=%u cut=%u error=%llu",
                  c->name, c->rank, llu(m->number), decision(m), slr_reason_name(m->reason), m->shard, m->count,
                  slr_type_name(m->type), (int)m->in_place, (void *)m->stream, m->recv, m->send, m->pieces, m->chunks,
                  m->deliveries[SLR_BY_SLOT], m->deliveries[SLR_ZERO_COPY], m->deliveries[SLR_BY_PUSH], llu(r->begin),
                  llu(r->end), m->kind == SLR_TIMED_RING ? slr_reason_name(m->ended) : "-", llu(r->exposed),
                  m->timing.spans, m->timing.cut, llu(r->error));
}

static void write_span(const struct reading *r, const struct slr_timed_span *s)
{
    slr_log_asked(
        "span", "comm=%s crank=%d call=%llu decision=%s lane=%s kind=%s begin=%llu end=%llu peer=%d piece=%d bytes=%zu",
        r->c->name, r->c->rank, llu(r->m->number), decision(r->m), slr_lane_name(s->lane), slr_span_name(s->kind),
        llu(r->at[s->begin]), llu(r->at[s->end]), s->peer, s->piece, s->bytes);
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
    write_gather(r);
    for (unsigned i = 0; i < r->m->timing.spans; i++)
        write_span(r, &r->m->timing.span[i]);
}

/* True: it is done with. */
static bool read_one(struct slr_comm *c, struct slr_timeline *t, const struct slr_timed *m)
{
    struct reading r = {.c = c, .m = m, .at = t->at};
    CUresult q = m->timing.broken ? CUDA_ERROR_INVALID_VALUE : slr_timing_query(&m->timing);
    bool failed = atomic_load(&c->error) != ncclSuccess;
    if (q == CUDA_ERROR_NOT_READY && !failed)
        return false;
    bool known = q == CUDA_SUCCESS && !failed && read_times(t, &r);
    if (known) {
        sum_up(&r);
        say_clock(c, t, r.error);
        write_lines(&r);
    }
    *(known ? &t->written : &t->failed) += 1;
    return true;
}

static struct slr_timed *oldest(struct slr_timeline *t)
{
    pthread_mutex_lock(&t->lock);
    struct slr_timed *m = t->closed;
    pthread_mutex_unlock(&t->lock);
    return m;
}

static void take_off(struct slr_timeline *t, struct slr_timed *m)
{
    pthread_mutex_lock(&t->lock);
    t->closed = m->next;
    if (!t->closed)
        t->closed_end = &t->closed;
    t->taken--;
    m->next = t->free;
    t->free = m;
    pthread_mutex_unlock(&t->lock);
}

void slr_timeline_read(struct slr_comm *c, struct slr_timeline *t, bool last)
{
    if (!oldest(t) || !(last ? slr_device_clock_insist : slr_device_clock_look)(&t->clock))
        return;
    for (struct slr_timed *m; (m = oldest(t)) && read_one(c, t, m);)
        take_off(t, m);
}
