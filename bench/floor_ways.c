/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules of floor. In an iteration each GPU's copy stream waits until both compute streams
 * have reached the gather, as ranks do, and pulls the other one's shard in pieces. The compute
 * stream multiplies the own shard from where it lies, then each piece behind its event. */
#include "floor.h"

enum { WHOLE = 8 };                                     /* eighths */
enum { TILE = 128, LEAST_CUT_BY_TILES = WHOLE * TILE }; /* rows */

static const struct cut {
    const char *name;
    int pieces;
    size_t eighths[MOST_PIECES];
} cuts[] = {
    {"1", 1, {8}},
    {".5 .5", 2, {4, 4}},
    {".5 .25 .25", 3, {4, 2, 2}},
    {".75 .25", 2, {6, 2}},
    {".25 .25 .25 .25", 4, {2, 2, 2, 2}},
    {".5 .25 .125 .125", 4, {4, 2, 1, 1}},
};
const char *const own_name[OWN_WAYS] = {"in place", "by memcpy", "pulled back"};

enum { CUTS = sizeof cuts / sizeof *cuts };
_Static_assert(2 + OWN_WAYS * (2 * CUTS - 1) <= MOST_WAYS, "floor.h: MOST_WAYS");

/* What one call enqueues. Rows of a shard: pieces end at edges. */
struct job {
    const struct way *way;
    size_t half, k, n;
    int pieces;
    size_t edge[MOST_PIECES + 1];
};

int ways_list(struct way *out)
{
    int count = 0;
    out[count++] = (struct way){.kind = GEMM_ALONE};
    out[count++] = (struct way){.kind = COPY_ALONE};
    for (enum own own = OWN_NONE; own < OWN_WAYS; own++)
        for (int i = 0; i < CUTS; i++)
            for (int whole = 0; whole < (cuts[i].pieces > 1 ? 2 : 1); whole++)
                out[count++] = (struct way){.kind = SCHEDULE, .cut = &cuts[i], .own_whole = whole, .own = own};
    return count;
}

const char *way_name(const struct way *way, char *buf, size_t size)
{
    if (way->kind == SCHEDULE)
        snprintf(buf, size, "%s%s", way->cut->name, way->own_whole ? ", own whole" : "");
    else
        snprintf(buf, size, "%s alone", way->kind == GEMM_ALONE ? "GEMM" : "copy");
    return buf;
}

static struct job job_of(const struct way *way, const struct shape *shape)
{
    struct job job = {.way = way, .half = shape->m / 2, .k = shape->k, .n = shape->n};
    const size_t unit = job.half >= LEAST_CUT_BY_TILES ? TILE : 1;
    job.pieces = way->kind == SCHEDULE ? way->cut->pieces : 1;
    for (int i = 0; i < job.pieces && way->kind == SCHEDULE; i++)
        job.edge[i + 1] = job.edge[i] + job.half * way->cut->eighths[i] / WHOLE / unit * unit;
    job.edge[job.pieces] = job.half;
    return job;
}

/* Rows from the other GPU's memory, or from the own. */
static void copy_rows(const struct job *job, bf16 *to, const bf16 *from, size_t rows, cudaStream_t stream)
{
    OK(cudaMemcpyAsync(to, from, rows * job->k * sizeof(bf16), cudaMemcpyDeviceToDevice, stream));
}

/* The place of a shard, from a row on. */
static bf16 *place(const struct job *job, int device, int owner, size_t row)
{
    return gpu[device].recv + ((size_t)owner * job->half + row) * job->k;
}

static void pull(const struct job *job, int d)
{
    const struct gpu *g = &gpu[d], *peer = &gpu[!d];
    OK(cudaStreamWaitEvent(g->copy, g->reached, 0));
    OK(cudaStreamWaitEvent(g->copy, peer->reached, 0));
    for (int i = 0; i < job->pieces; i++) {
        const size_t row = job->edge[i], rows = job->edge[i + 1] - row;
        copy_rows(job, place(job, d, !d, row), peer->send + row * job->k, rows, g->copy);
        OK(cudaEventRecord(g->piece[i], g->copy));
    }
}

/* A kernel of the driver's: no copy within a device is done by a copy engine. */
static void copy_own(const struct job *job, int d)
{
    const struct gpu *g = &gpu[d];
    OK(cudaStreamWaitEvent(g->low, g->reached, 0));
    copy_rows(job, place(job, d, d, 0), g->send, job->half, g->low);
    OK(cudaEventRecord(g->own, g->low));
}

/* From where the other GPU has pulled it to: over the link, so a copy engine does it. */
static void pull_back(const struct job *job, int d)
{
    const struct gpu *g = &gpu[d];
    OK(cudaStreamWaitEvent(g->copy, gpu[!d].piece[job->pieces - 1], 0));
    copy_rows(job, place(job, d, d, 0), place(job, !d, d, 0), job->half, g->copy);
    OK(cudaEventRecord(g->own, g->copy));
}

/* `row` of the result is the first one. */
static void multiply(const struct job *job, int d, const bf16 *from, size_t row, size_t rows)
{
    const struct gpu *g = &gpu[d];
    const float one = 1, zero = 0;
    const int n = (int)job->n, k = (int)job->k;
    OK(cublasGemmEx(g->blas, CUBLAS_OP_T, CUBLAS_OP_N, n, (int)rows, k, &one, g->weight, CUDA_R_16BF, k, from,
                    CUDA_R_16BF, k, &zero, g->out + row * job->n, CUDA_R_16BF, n, CUBLAS_COMPUTE_32F,
                    CUBLAS_GEMM_DEFAULT));
}

static void multiply_own(const struct job *job, int d)
{
    const size_t first = (size_t)d * job->half;
    const int pieces = job->way->own_whole ? 1 : job->pieces;
    for (int i = 0; i < pieces; i++) {
        const size_t row = job->edge[i], end = pieces == 1 ? job->half : job->edge[i + 1];
        multiply(job, d, gpu[d].send + row * job->k, first + row, end - row);
    }
}

static void multiply_pulled(const struct job *job, int d)
{
    const size_t first = (size_t)!d * job->half;
    for (int i = 0; i < job->pieces; i++) {
        const size_t row = job->edge[i];
        OK(cudaStreamWaitEvent(gpu[d].compute, gpu[d].piece[i], 0));
        multiply(job, d, place(job, d, !d, row), first + row, job->edge[i + 1] - row);
    }
}

static void reach(const struct job *job, int d)
{
    (void)job;
    OK(cudaEventRecord(gpu[d].reached, gpu[d].compute));
}

static void place_own(const struct job *job, int d)
{
    if (job->way->own == OWN_MEMCPY)
        copy_own(job, d);
    else if (job->way->own == OWN_BACK)
        pull_back(job, d);
}

static void multiply_all(const struct job *job, int d)
{
    multiply_own(job, d);
    multiply_pulled(job, d);
    if (job->way->own != OWN_NONE)
        OK(cudaStreamWaitEvent(gpu[d].compute, gpu[d].own, 0));
}

static void gemm_alone(const struct job *job, int d)
{
    multiply(job, d, gpu[d].recv, 0, 2 * job->half);
}

static void copy_alone(const struct job *job, int d)
{
    copy_rows(job, place(job, d, !d, 0), gpu[!d].send, job->half, gpu[d].copy);
}

static void on_both(void (*step)(const struct job *job, int d), const struct job *job)
{
    for (int d = 0; d < GPUS; d++) {
        on(d);
        step(job, d);
    }
}

static void enqueue(const struct job *job)
{
    switch (job->way->kind) {
    case GEMM_ALONE:
        on_both(gemm_alone, job);
        break;
    case COPY_ALONE:
        on_both(copy_alone, job);
        break;
    case SCHEDULE: /* an event that is waited for has been recorded in this iteration */
        on_both(reach, job);
        on_both(pull, job);
        on_both(place_own, job);
        on_both(multiply_all, job);
        break;
    }
}

/* The one that ends an iteration. */
static cudaStream_t last_stream(const struct job *job, int d)
{
    return job->way->kind == COPY_ALONE ? gpu[d].copy : gpu[d].compute;
}

static void hold(const struct job *job, int d)
{
    gate_wait(last_stream(job, d));
}

static void start(const struct job *job, int d)
{
    OK(cudaEventRecord(gpu[d].start, last_stream(job, d)));
}

static void stop(const struct job *job, int d)
{
    OK(cudaEventRecord(gpu[d].stop, last_stream(job, d)));
}

static void finish(const struct job *job, int d)
{
    OK(cudaStreamSynchronize(last_stream(job, d)));
}

void way_run(const struct way *way, const struct shape *shape)
{
    const struct job job = job_of(way, shape);
    for (int i = 0; i < 2; i++)
        enqueue(&job);
    on_both(finish, &job);
}

double way_ms(const struct way *way, const struct shape *shape, int iterations)
{
    const struct job job = job_of(way, shape);
    const int first = iterations / 4;
    double slowest = 0;
    gate_set(false);
    on_both(hold, &job);
    for (int i = 0; i < iterations; i++) {
        if (i == first)
            on_both(start, &job);
        enqueue(&job);
    }
    on_both(stop, &job);
    gate_set(true);
    on_both(finish, &job);
    for (int d = 0; d < GPUS; d++) {
        float ms;
        OK(cudaEventElapsedTime(&ms, gpu[d].start, gpu[d].stop));
        slowest = (double)ms > slowest ? (double)ms : slowest;
    }
    return slowest / (iterations - first);
}
