/* SPDX-License-Identifier: Apache-2.0 */
/* The timed loops. Iterations are enqueued one after another as an application does; two events
 * around each one give its time on the device, the clock around the loop the time on the host. */
#include "ag_rank.h"

#include <stdlib.h>

struct spans {
    cudaEvent_t *begin, *end;
    double *ms;
};

static int for_lanes(struct ag_rank *r, int (*operation)(struct ag_rank *, struct ag_lane *))
{
    for (int i = 0; i < r->lane_count; i++)
        AG_TRY(operation(r, &r->lanes[i]));
    return 0;
}

static int gemm(struct ag_rank *r, struct ag_lane *lane)
{
    return r->data.shape.gemm ? ag_gemm(r, lane, 0) : 0;
}

static int whole(struct ag_rank *r, struct ag_lane *lane)
{
    AG_TRY(ag_gather(r, lane));
    AG_TRY(ag_between(r, lane));
    return gemm(r, lane);
}

static int synchronize(struct ag_rank *r, struct ag_lane *lane)
{
    AG_CUDA(r, cudaStreamSynchronize(lane->stream));
    return 0;
}

static int run_once(struct ag_rank *r, enum ag_loop loop)
{
    switch (loop) {
    case AG_LOOP_GEMM:
        return for_lanes(r, gemm);
    case AG_LOOP_GATHER:
        return for_lanes(r, ag_gather);
    case AG_LOOP_SEQUENCE:
        AG_TRY(for_lanes(r, ag_gather));
        AG_TRY(for_lanes(r, synchronize));
        AG_TRY(for_lanes(r, ag_between));
        return for_lanes(r, gemm);
    case AG_LOOP_WHOLE:
        return for_lanes(r, whole);
    }
    return -1;
}

/* With several streams, an iteration starts on all of them after `begin` and `end` comes after all
 * of them. */
static int fork_lanes(struct ag_rank *r)
{
    if (r->options->streams == 1)
        return 0;
    AG_CUDA(r, cudaEventRecord(r->fork, r->lanes[0].stream));
    for (int i = 1; i < r->options->streams; i++)
        AG_CUDA(r, cudaStreamWaitEvent(r->lanes[i].stream, r->fork, 0));
    return 0;
}

static int join_lanes(struct ag_rank *r)
{
    for (int i = 1; i < r->options->streams; i++) {
        AG_CUDA(r, cudaEventRecord(r->lanes[i].ended, r->lanes[i].stream));
        AG_CUDA(r, cudaStreamWaitEvent(r->lanes[0].stream, r->lanes[i].ended, 0));
    }
    return 0;
}

static int run_loop(struct ag_rank *r, enum ag_loop loop, struct spans *spans)
{
    for (long i = 0; i < r->options->iters; i++) {
        ag_enter(r, (enum ag_phase)((int)AG_PHASE_gemm + (int)loop), i);
        AG_CUDA(r, cudaEventRecord(spans->begin[i], r->lanes[0].stream));
        AG_TRY(fork_lanes(r));
        AG_TRY(run_once(r, loop));
        AG_TRY(join_lanes(r));
        AG_CUDA(r, cudaEventRecord(spans->end[i], r->lanes[0].stream));
    }
    return for_lanes(r, synchronize);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, long count)
{
    qsort(values, (size_t)count, sizeof(*values), by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static int measure(struct ag_rank *r, enum ag_loop loop, struct spans *spans)
{
    const long iters = r->options->iters;
    if (ag_barrier(r->shared) != 0)
        return ag_failed(r, "barrier", "another rank", "failed");
    const double start = ag_now();
    AG_TRY(run_loop(r, loop, spans));
    const double seconds = ag_now() - start;
    for (long i = 0; i < iters; i++) {
        float ms;
        AG_CUDA(r, cudaEventElapsedTime(&ms, spans->begin[i], spans->end[i]));
        spans->ms[i] = ms;
    }
    r->record->times[loop] = (struct ag_times){median(spans->ms, iters), seconds * 1e3 / (double)iters};
    return 0;
}

static int measure_all(struct ag_rank *r, struct spans *spans)
{
    for (long i = 0; i < r->options->iters; i++) {
        AG_CUDA(r, cudaEventCreate(&spans->begin[i]));
        AG_CUDA(r, cudaEventCreate(&spans->end[i]));
    }
    for (long i = 0; i < r->options->warmup; i++) {
        ag_enter(r, AG_PHASE_warmup, i);
        AG_TRY(run_once(r, AG_LOOP_WHOLE));
    }
    AG_TRY(for_lanes(r, synchronize));
    for (int loop = 0; loop < AG_LOOPS; loop++)
        if (r->data.shape.gemm || loop == AG_LOOP_GATHER)
            AG_TRY(measure(r, (enum ag_loop)loop, spans));
    for (long i = 0; i < r->options->iters; i++) {
        AG_CUDA(r, cudaEventDestroy(spans->begin[i]));
        AG_CUDA(r, cudaEventDestroy(spans->end[i]));
    }
    return 0;
}

int ag_time_loops(struct ag_rank *r)
{
    const size_t iters = (size_t)r->options->iters;
    struct spans spans = {calloc(iters, sizeof(cudaEvent_t)), calloc(iters, sizeof(cudaEvent_t)),
                          calloc(iters, sizeof(double))};
    int result;
    if (spans.begin && spans.end && spans.ms)
        result = measure_all(r, &spans);
    else
        result = ag_failed(r, "calloc", "host", "out of memory");
    free(spans.begin);
    free(spans.end);
    free(spans.ms);
    return result;
}
