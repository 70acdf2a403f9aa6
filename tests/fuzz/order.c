/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include <unistd.h>

static void join(struct seen *a, const struct seen *b)
{
    for (int s = 0; s < STREAMS; s++)
        a->of[s] = a->of[s] > b->of[s] ? a->of[s] : b->of[s];
}

void seen_too(struct prog *p, int stream, int other)
{
    join(&p->seen[stream], &p->seen[other]);
}

void host_saw(struct prog *p, int stream)
{
    join(&p->seen[HOST], &p->seen[stream]);
}

int any_stream(struct prog *p)
{
    int s;
    do
        s = (int)draw(p, STREAMS);
    while (!p->stream[s].used);
    return s;
}

/* What an operation that is put on the stream now comes after: also what the host has seen and, by the legacy default
 * stream's rules, what went before on the streams that take part in them. */
static struct seen next_on(const struct prog *p, int stream)
{
    struct seen all = p->seen[stream];
    join(&all, &p->seen[HOST]);
    if (stream != HOST && stream != LEGACY && p->stream[stream].blocking)
        join(&all, &p->behind_legacy);
    for (int s = 1; stream == LEGACY && s < STREAMS; s++)
        if (p->stream[s].used && p->stream[s].blocking)
            join(&all, &p->seen[s]);
    return all;
}

static void record(struct prog *p, int e, int stream)
{
    struct event *event = &p->event[e];
    note(p, "record e%d on s%d", e, stream);
    CUDA(cudaEventRecord(event->handle, p->stream[stream].handle));
    event->recorded = true;
    event->stream = stream;
    event->seen = p->seen[stream];
}

static void wait_event(struct prog *p, int stream, int e)
{
    note(p, "s%d waits for e%d", stream, e);
    CUDA(cudaStreamWaitEvent(p->stream[stream].handle, p->event[e].handle, 0));
    if (p->event[e].recorded)
        join(&p->seen[stream], &p->event[e].seen);
}

static void await_event(struct prog *p, int e)
{
    if (ONE_IN(p, 2)) {
        note(p, "host synchronises with e%d", e);
        CUDA(cudaEventSynchronize(p->event[e].handle));
    } else {
        note(p, "host polls e%d", e);
        cudaError_t got;
        while ((got = cudaEventQuery(p->event[e].handle)) == cudaErrorNotReady)
            usleep(50);
        CUDA(got);
    }
    if (p->event[e].recorded)
        join(&p->seen[HOST], &p->event[e].seen);
}

static void await_stream(struct prog *p, int stream)
{
    cudaStream_t handle = p->stream[stream].handle;
    if (!ONE_IN(p, 3)) {
        note(p, "host synchronises with s%d", stream);
        CUDA(cudaStreamSynchronize(handle));
    } else {
        note(p, "host polls s%d", stream);
        cudaError_t got;
        while ((got = cudaStreamQuery(handle)) == cudaErrorNotReady)
            usleep(50);
        CUDA(got);
    }
    host_saw(p, stream);
}

static void await_device(struct prog *p)
{
    note(p, "host synchronises with the device");
    CUDA(cudaDeviceSynchronize());
    for (int s = 0; s < STREAMS; s++)
        host_saw(p, s);
}

static void edge(struct prog *p, int from, int to)
{
    const int e = (int)draw(p, EVENTS), other = (int)draw(p, EVENTS);
    const uint64_t way = draw(p, 12);
    if (to != HOST && way < 7) {
        record(p, e, from);
        wait_event(p, to, e);
    } else if (to != HOST && way == 7) {
        const int between = any_stream(p);
        record(p, e, from);
        wait_event(p, between, e);
        record(p, other, between);
        wait_event(p, to, other);
    } else if (way == 8 || way < 4) {
        record(p, e, from);
        await_event(p, e);
    } else if (way == 9 && !p->shared) {
        await_device(p);
    } else {
        await_stream(p, from);
    }
}

void need(struct prog *p, int actor, struct buffer *b, bool write)
{
    for (int s = 0; s < STREAMS; s++) {
        uint64_t last = b->wrote.of[s];
        if (write && b->read.of[s] > last)
            last = b->read.of[s];
        if (last > next_on(p, actor).of[s])
            edge(p, s, actor);
    }
}

void issued_in_group(struct prog *p, int stream, struct buffer *const *reads, struct buffer *const *writes)
{
    const uint64_t n = p->seen[stream].of[stream] = ++p->stream[stream].issued;
    if (stream == LEGACY)
        p->behind_legacy = p->seen[LEGACY];
    for (; reads && *reads; reads++)
        (*reads)->read.of[stream] = n;
    for (; writes && *writes; writes++)
        (*writes)->wrote.of[stream] = n;
}

void begin(struct prog *p, int stream)
{
    p->seen[stream] = next_on(p, stream);
}

void issued(struct prog *p, int stream, struct buffer *const *reads, struct buffer *const *writes)
{
    begin(p, stream);
    issued_in_group(p, stream, reads, writes);
}

static void make_event(struct event *e, bool timing)
{
    const unsigned flags = timing ? cudaEventDefault : cudaEventDisableTiming;
    *e = (struct event){.timing = timing};
    CUDA(cudaEventCreateWithFlags(&e->handle, flags));
}

static void make_stream(struct prog *p, int s, bool blocking)
{
    struct stream *stream = &p->stream[s];
    blocking = blocking && !p->shared;
    stream->used = true;
    stream->blocking = blocking;
    CUDA(cudaStreamCreateWithFlags(&stream->handle, blocking ? cudaStreamDefault : cudaStreamNonBlocking));
    note(p, "s%d is made, %s", s, blocking ? "blocking" : "non-blocking");
}

/* A stream with work on it is destroyed, and another one takes its place behind that work. */
static void replace_stream(struct prog *p, int s)
{
    const int e = (int)draw(p, EVENTS);
    if (s == LEGACY)
        return;
    record(p, e, s);
    note(p, "s%d is destroyed", s);
    CUDA(cudaStreamDestroy(p->stream[s].handle));
    make_stream(p, s, ONE_IN(p, 3));
    wait_event(p, s, e);
}

static void elapsed(struct prog *p)
{
    const int a = (int)draw(p, EVENTS), b = (int)draw(p, EVENTS);
    float ms = 0;
    if (!p->event[a].timing || !p->event[b].timing || !p->event[a].recorded)
        return;
    record(p, b, p->event[a].stream);
    await_event(p, a);
    await_event(p, b);
    note(p, "elapsed from e%d to e%d", a, b);
    CUDA(cudaEventElapsedTime(&ms, p->event[a].handle, p->event[b].handle));
    EXPECT(ms >= 0 || a == b, "rank %d: step %d: %f ms from an event to a later one", p->r->rank, p->step, (double)ms);
}

static void sleep_us(void *us)
{
    usleep((unsigned)(uintptr_t)us);
}

static void hold_stream(struct prog *p, int s)
{
    const uintptr_t us = 100 + draw(p, 2000);
    note(p, "s%d is held for %zu us", s, (size_t)us);
    CUDA(cudaLaunchHostFunc(p->stream[s].handle, sleep_us, (void *)us));
    issued(p, s, NULL, NULL);
}

static void replace_event(struct prog *p, int e)
{
    note(p, "e%d is destroyed and made", e);
    CUDA(cudaEventDestroy(p->event[e].handle));
    make_event(&p->event[e], ONE_IN(p, 2));
}

void order_step(struct prog *p)
{
    const int s = any_stream(p), e = (int)draw(p, EVENTS);
    cudaError_t got;
    switch (draw(p, 16)) {
    case 0:
    case 1:
    case 2:
        record(p, e, s);
        return;
    case 3:
    case 4:
    case 5:
        wait_event(p, s, e);
        return;
    case 6:
    case 7:
        note(p, "query e%d", e);
        got = cudaEventQuery(p->event[e].handle);
        CHECK(got == cudaSuccess || got == cudaErrorNotReady, "cudaEventQuery: %s", cudaGetErrorString(got));
        return;
    case 8:
        note(p, "query s%d", s);
        got = cudaStreamQuery(p->stream[s].handle);
        CHECK(got == cudaSuccess || got == cudaErrorNotReady, "cudaStreamQuery: %s", cudaGetErrorString(got));
        return;
    case 9:
        await_event(p, e);
        return;
    case 10:
        await_stream(p, s);
        return;
    case 11:
        if (p->shared)
            await_stream(p, s);
        else
            await_device(p);
        return;
    case 12:
        elapsed(p);
        return;
    case 13:
        replace_stream(p, s);
        return;
    case 14:
        replace_event(p, e);
        return;
    default:
        hold_stream(p, s);
    }
}

void order_open(struct prog *p)
{
    const int n = 1 + (int)draw(p, 3);
    p->stream[LEGACY] = (struct stream){.used = ONE_IN(p, 3) && !p->shared};
    for (int s = 1; s <= n; s++)
        make_stream(p, s, ONE_IN(p, 3));
    for (int e = 0; e < EVENTS; e++)
        make_event(&p->event[e], e < 2);
}

void order_close(struct prog *p)
{
    for (int e = 0; e < EVENTS; e++)
        CUDA(cudaEventDestroy(p->event[e].handle));
    for (int s = 1; s < STREAMS; s++)
        if (p->stream[s].used)
            CUDA(cudaStreamDestroy(p->stream[s].handle));
}
