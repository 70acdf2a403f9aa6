/* SPDX-License-Identifier: Apache-2.0 */
/* Records and the device's clock (kernels/timing.h, kernels/timing.h) on a fake device whose clock has another zero, and
 * perhaps another rate, than the host's. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <time.h>
#include "base/wait.h"
#include "kernels/timing.h"

/* An event: the device's time at its record, in nanoseconds. The device runs an event `latency` ns after its record;
 * -1: never. */
struct event {
    double at;
    uint64_t done_ns;
    bool recorded;
};

static double rate = 1, zero = 12345678;
static int64_t latency = 20000;
static int creates_left = -1, records_left = -1; /* -1: any number */
static unsigned alive, recorded;

static double device_time(uint64_t host)
{
    return ((double)host - zero) / rate;
}

static CUresult event_create(CUevent *e, unsigned flags)
{
    cr_assert_eq(flags, CU_EVENT_DEFAULT, "events without timing have no time");
    if (creates_left == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    creates_left -= creates_left > 0;
    *e = calloc(1, sizeof(struct event));
    alive++;
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent e)
{
    free(e);
    alive--;
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent handle, CUstream s)
{
    struct event *e = (struct event *)handle;
    (void)s;
    if (records_left == 0)
        return CUDA_ERROR_UNKNOWN;
    records_left -= records_left > 0;
    recorded++;
    e->recorded = true;
    e->done_ns = latency < 0 ? UINT64_MAX : slr_now_ns() + (uint64_t)latency;
    e->at = device_time(e->done_ns);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent handle)
{
    const struct event *e = (const struct event *)handle;
    return !e->recorded || slr_now_ns() >= e->done_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult elapsed(float *ms, CUevent a, CUevent b)
{
    if (event_query(a) != CUDA_SUCCESS || event_query(b) != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((((struct event *)b)->at - ((struct event *)a)->at) / 1e6);
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *s, unsigned flags, int priority)
{
    (void)priority;
    cr_assert_eq(flags, CU_STREAM_NON_BLOCKING, "the legacy default stream must not wait for it, nor it for that");
    *s = (CUstream)malloc(1);
    return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream s)
{
    free(s);
    return CUDA_SUCCESS;
}

static void use_fakes(void)
{
    slr_real.cuEventCreate = event_create;
    slr_real.cuEventDestroy = event_destroy;
    slr_real.cuEventRecord = event_record;
    slr_real.cuEventQuery = event_query;
    slr_real.cuEventElapsedTime = elapsed;
    slr_real.cuStreamCreateWithPriority = stream_create;
    slr_real.cuStreamDestroy = stream_destroy;
}

static void sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

/* Events of which the host's time is known come out as that, within the error that is stated. */
static void check_times(struct slr_device_clock *k)
{
    for (int round = 0; round < 4; round++) {
        CUevent early = NULL, late = NULL;
        cr_assert_eq(event_create(&early, 0), CUDA_SUCCESS);
        cr_assert_eq(event_create(&late, 0), CUDA_SUCCESS);
        cr_assert_eq(event_record(early, NULL), CUDA_SUCCESS);
        sleep_ms(60);
        cr_assert(slr_device_clock_insist(k));
        cr_assert_eq(event_record(late, NULL), CUDA_SUCCESS);
        sleep_ms(2);
        for (int i = 0; i < 2; i++) {
            const struct event *e = (const struct event *)(i ? late : early);
            uint64_t ns, error;
            cr_assert_eq(slr_device_clock_time(k, i ? late : early, &ns, &error), CUDA_SUCCESS);
            double off = (double)ns - (double)e->done_ns;
            cr_expect(off < (double)error && off > -(double)error, "round %d: %f ns off, stated %llu", round, off,
                      (unsigned long long)error);
        }
        event_destroy(early);
        event_destroy(late);
    }
}

static void check_clock(double device_rate)
{
    struct slr_device_clock k;
    rate = device_rate;
    use_fakes();
    cr_assert_eq(slr_device_clock_open(&k), SLR_OK);
    check_times(&k);
    cr_expect(k.rate / rate < 1.5 && k.rate / rate > 0.5, "rate %f", k.rate);
    slr_device_clock_close(&k);
    cr_expect_eq(alive, 0);
}

Test(timing, the_clock_of_a_device_that_drifts)
{
    check_clock(1 + 50e-6);
}

Test(timing, the_clock_of_a_device_whose_time_is_dilated)
{
    check_clock(50);
}

Test(timing, a_stream_that_does_not_run_gives_no_base_and_is_not_waited_for)
{
    struct slr_device_clock k;
    use_fakes();
    latency = -1;
    cr_assert_eq(slr_device_clock_open(&k), SLR_OK);
    for (int i = 0; i < 3; i++)
        cr_expect(!slr_device_clock_look(&k));
    latency = 1000;
    cr_expect(slr_device_clock_insist(&k), "it does when it runs again");
    double before = (double)k.base_ns;
    latency = -1;
    sleep_ms(60);
    cr_expect(slr_device_clock_look(&k), "the older base stays");
    cr_expect_eq((double)k.base_ns, before);
    slr_device_clock_close(&k);
}

Test(timing, a_clock_that_can_not_be_made_leaves_nothing)
{
    use_fakes();
    for (creates_left = 0; creates_left < 4;) {
        struct slr_device_clock k;
        int left = creates_left;
        cr_expect_neq(slr_device_clock_open(&k), SLR_OK);
        cr_expect_eq(alive, 0);
        creates_left = left + 1;
    }
}

static void record_spans(struct slr_timing *r, unsigned n)
{
    CUstream s = NULL;
    slr_timing_begin(r);
    slr_timing_mark(r, SLR_TRACK_PULL, s);
    for (unsigned i = 0; i < n; i++)
        slr_timing_did(r, SLR_TRACK_PULL, s, SLR_SPAN_PULL, 1, (int)i, 10);
}

Test(timing, neighbours_share_a_stamp_and_lanes_do_not)
{
    struct slr_timing r = {0};
    use_fakes();
    slr_timing_begin(&r);
    slr_timing_mark(&r, SLR_TRACK_PULL, NULL);
    slr_timing_mark(&r, SLR_TRACK_PUBLISH, NULL);
    slr_timing_did(&r, SLR_TRACK_PULL, NULL, SLR_SPAN_WAIT, 3, 0, 0);
    slr_timing_did(&r, SLR_TRACK_PUBLISH, NULL, SLR_SPAN_STAGE, -1, 0, 7);
    slr_timing_did(&r, SLR_TRACK_PULL, NULL, SLR_SPAN_PULL, 3, 0, 5);
    slr_timing_did(&r, SLR_TRACK_APP, NULL, SLR_SPAN_GEMM, -1, 0, 0); /* nobody has said where the lane stood */
    cr_assert_eq(r.spans, 3);
    cr_expect_eq(r.cut, 1);
    cr_expect_eq(r.span[2].begin, r.span[0].end);
    cr_expect_eq(r.span[1].begin, 1);
    cr_expect_eq(r.span[1].track, SLR_TRACK_PUBLISH);
    cr_expect_eq(r.span[2].bytes, 5);
    slr_timing_free(&r);
    cr_expect_eq(alive, 0);
}

Test(timing, events_are_used_again)
{
    struct slr_timing r = {0};
    use_fakes();
    record_spans(&r, 50);
    unsigned made = alive;
    record_spans(&r, 50);
    cr_expect_eq(alive, made);
    cr_expect_eq(r.spans, 50);
    cr_expect_eq(recorded, 2 * 51);
    slr_timing_free(&r);
}

Test(timing, what_does_not_fit_is_counted)
{
    struct slr_timing r = {0};
    use_fakes();
    record_spans(&r, SLR_TIMING_STAMPS + 9);
    cr_expect_eq(r.stamps, SLR_TIMING_STAMPS);
    cr_expect_eq(r.spans, SLR_TIMING_STAMPS - 1);
    cr_expect_eq(r.cut, 10);
    cr_expect(!r.broken);
    slr_timing_free(&r);
}

Test(timing, an_event_that_fails_breaks_the_record_and_nothing_more_is_recorded)
{
    for (int i = 0; i < 2; i++) {
        struct slr_timing r = {0};
        use_fakes();
        recorded = 0;
        *(i ? &creates_left : &records_left) = 4;
        record_spans(&r, 10);
        cr_expect(r.broken);
        cr_expect_eq(recorded, 4);
        cr_expect_eq(r.spans, 3);
        creates_left = records_left = -1;
        record_spans(&r, 10);
        cr_expect(!r.broken, "the next use is a new one");
        cr_expect_eq(r.spans, 10);
        slr_timing_free(&r);
        cr_expect_eq(alive, 0);
    }
}

Test(timing, a_record_is_complete_when_all_of_it_is)
{
    struct slr_timing r = {0};
    use_fakes();
    record_spans(&r, 2);
    ((struct event *)r.event[1])->done_ns = UINT64_MAX;
    sleep_ms(1);
    cr_expect_eq(slr_timing_query(&r), CUDA_ERROR_NOT_READY);
    ((struct event *)r.event[1])->done_ns = 0;
    cr_expect_eq(slr_timing_query(&r), CUDA_SUCCESS);
    slr_timing_free(&r);
}

/* ---- in graphs: a fake stream whose latest operation is always the next node, and nodes that have events ---- */

#define NODES 16

static CUgraphNode tip;
static unsigned nodes;
static int sets_left = -1;
static CUevent event_of[NODES];

static unsigned number_of(CUgraphNode node)
{
    return (unsigned)((uintptr_t)node - 1);
}

static CUresult record_node(CUevent e, CUstream s, unsigned flags)
{
    (void)s;
    cr_assert_eq(flags, CU_EVENT_RECORD_EXTERNAL, "without it there is no node");
    tip = (CUgraphNode)(uintptr_t)(nodes + 1);
    event_of[nodes++] = e;
    return CUDA_SUCCESS;
}

static CUresult capture_info(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                             const CUgraphNode **node, const CUgraphEdgeData **edge, size_t *n)
{
    (void)s, (void)id, (void)graph, (void)edge;
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    *node = &tip;
    *n = 1;
    return CUDA_SUCCESS;
}

static CUresult set_event(CUgraphExec exec, CUgraphNode node, CUevent e)
{
    (void)exec;
    if (sets_left == 0)
        return CUDA_ERROR_INVALID_VALUE;
    sets_left -= sets_left > 0;
    event_of[number_of(node)] = e;
    return CUDA_SUCCESS;
}

/* A gather with spans, captured. */
static void capture(struct slr_timing *r, unsigned n)
{
    use_fakes();
    slr_real.cuEventRecordWithFlags = record_node;
    slr_real.cuStreamGetCaptureInfo = capture_info;
    slr_real.cuGraphExecEventRecordNodeSetEvent = set_event;
    nodes = 0;
    cr_assert(slr_timing_graphs());
    cr_assert_eq(event_create(&r->stand_in, 0), CUDA_SUCCESS);
    record_spans(r, n);
    cr_assert_eq(r->stamps, n + 1);
    cr_assert_eq(r->spans, n);
    cr_assert_eq(recorded, 0);
}

static void release(struct slr_timing *captured, struct slr_timing *replayed)
{
    event_destroy(captured->stand_in);
    slr_timing_free(captured);
    slr_timing_free(replayed);
}

static unsigned with(CUevent e)
{
    unsigned n = 0;
    for (unsigned i = 0; i < nodes; i++)
        n += event_of[i] == e;
    return n;
}

/* Whatever the driver says of an event before its node's turn. */
Test(timing, a_replay_is_complete_when_its_graph_is)
{
    struct slr_timing captured = {0}, r = {0};
    capture(&captured, 4);
    cr_expect_eq(with(captured.stand_in), 5);
    slr_timing_begin(&r);
    cr_expect(slr_timing_give(NULL, captured.node, &captured, &r));
    for (unsigned i = 0; i < 5; i++)
        cr_expect_eq(event_of[number_of(captured.node[i])], r.event[i]);
    latency = 2000000;
    cr_expect(slr_timing_launched(NULL, captured.node, &captured, &r, (CUstream)1));
    cr_expect_eq(with(captured.stand_in), 5, "nothing of the record is left in the graph");
    cr_expect_eq(recorded, 1);
    cr_expect_eq(slr_timing_query(&r), CUDA_ERROR_NOT_READY);
    sleep_ms(4);
    cr_expect_eq(slr_timing_query(&r), CUDA_SUCCESS);
    release(&captured, &r);
    cr_expect_eq(alive, 0);
}

Test(timing, a_launch_that_fails_leaves_nothing_in_the_graph)
{
    struct slr_timing captured = {0}, r = {0};
    capture(&captured, 4);
    slr_timing_begin(&r);
    cr_expect(slr_timing_give(NULL, captured.node, &captured, &r));
    cr_expect(slr_timing_launched(NULL, captured.node, &captured, &r, NULL));
    cr_expect_eq(with(captured.stand_in), 5);
    cr_expect_eq(recorded, 0);
    release(&captured, &r);
}

Test(timing, a_node_that_can_not_be_given_an_event_breaks_the_replay)
{
    struct slr_timing captured = {0}, r = {0};
    capture(&captured, 4);
    slr_timing_begin(&r);
    sets_left = 2;
    cr_expect(!slr_timing_give(NULL, captured.node, &captured, &r));
    cr_expect(r.broken);
    sets_left = -1;
    cr_expect(slr_timing_launched(NULL, captured.node, &captured, &r, (CUstream)1));
    cr_expect_eq(with(captured.stand_in), 5);
    release(&captured, &r);
}

Test(timing, an_event_that_a_graph_keeps_is_not_used_again)
{
    struct slr_timing captured = {0}, r = {0};
    capture(&captured, 4);
    slr_timing_begin(&r);
    cr_expect(slr_timing_give(NULL, captured.node, &captured, &r));
    CUevent first = r.event[0];
    sets_left = 0;
    cr_expect(!slr_timing_launched(NULL, captured.node, &captured, &r, (CUstream)1));
    cr_expect(r.broken);
    record_spans(&r, 2);
    for (unsigned i = 0; i < r.stamps; i++)
        cr_expect_neq(r.event[i], first);
    cr_expect_eq(with(first), 1);
    release(&captured, &r);
}

Test(timing, what_is_captured_leaves_room_for_the_end)
{
    struct slr_timing captured = {.stand_in = (CUevent)1, .stamps = SLR_TIMING_STAMPS - 1}, r = {0};
    use_fakes();
    slr_timing_mark(&captured, SLR_TRACK_APP, NULL);
    cr_expect_eq(captured.stamps, SLR_TIMING_STAMPS - 1);
    cr_expect(!captured.broken);
    cr_expect(slr_timing_reserve(&r, SLR_TIMING_STAMPS));
    cr_expect(!slr_timing_reserve(&r, SLR_TIMING_STAMPS + 1));
    slr_timing_free(&r);
}
