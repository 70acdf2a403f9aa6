/* SPDX-License-Identifier: Apache-2.0 */
/* One process with a device for each rank, and one graph for all of them: it begins on the first one's stream, events
 * take the others into the capture and back, and its launches are on the first one's stream, or its default stream.
 *
 *   graphs_devices CASE RANKS [default]     gathers: the graph has a gather of each rank; sums: an all-reduce
 */
#include <string.h>
#include "../order/forms.h"

enum { MOST = 8, LAUNCHES = 3 };
#define SHARD ((size_t)64 << 10)
#define SUM 1000

static bool sums, by_default;
static int nranks;

static struct lane {
    ncclComm_t comm;
    cudaStream_t s;
    cudaEvent_t event;
    struct gather g;
    float *sum;
} lane[MOST];

static void open_lanes(void)
{
    ncclComm_t comm[MOST];
    NCCL(ncclCommInitAll(comm, nranks, NULL));
    for (int d = 0; d < nranks; d++) {
        lane[d].comm = comm[d];
        CUDA(cudaSetDevice(d));
        CUDA(cudaStreamCreateWithFlags(&lane[d].s, cudaStreamNonBlocking));
        CUDA(cudaEventCreateWithFlags(&lane[d].event, cudaEventDisableTiming));
        gather_alloc(&lane[d].g, d, nranks, SHARD);
        CUDA(cudaMalloc((void **)&lane[d].sum, SUM * sizeof(float)));
    }
}

static void close_lanes(void)
{
    for (int d = 0; d < nranks; d++) {
        CUDA(cudaSetDevice(d));
        NCCL(ncclCommDestroy(lane[d].comm));
        CUDA(cudaFree(lane[d].sum));
        gather_free(&lane[d].g);
        CUDA(cudaEventDestroy(lane[d].event));
        CUDA(cudaStreamDestroy(lane[d].s));
    }
}

/* The others come behind what is on the first stream. */
static void part(void)
{
    CUDA(cudaSetDevice(0));
    CUDA(cudaEventRecord(lane[0].event, lane[0].s));
    for (int d = 1; d < nranks; d++) {
        CUDA(cudaSetDevice(d));
        CUDA(cudaStreamWaitEvent(lane[d].s, lane[0].event, 0));
    }
}

/* And that one behind what is on them. */
static void meet(void)
{
    for (int d = 1; d < nranks; d++) {
        CUDA(cudaSetDevice(d));
        CUDA(cudaEventRecord(lane[d].event, lane[d].s));
        CUDA(cudaStreamWaitEvent(lane[0].s, lane[d].event, 0));
    }
    CUDA(cudaSetDevice(0));
}

static void launch(cudaGraphExec_t exec)
{
    const cudaStream_t on = by_default ? 0 : lane[0].s;
    CUDA(cudaSetDevice(0));
    if (by_default) {
        CUDA(cudaEventRecord(lane[0].event, lane[0].s));
        CUDA(cudaStreamWaitEvent(on, lane[0].event, 0));
    }
    CUDA(cudaGraphLaunch(exec, on));
    if (by_default) {
        CUDA(cudaEventRecord(lane[0].event, on));
        CUDA(cudaStreamWaitEvent(lane[0].s, lane[0].event, 0));
    }
}

static void gather_all(void)
{
    NCCL(ncclGroupStart());
    for (int d = 0; d < nranks; d++)
        gather_call(&lane[d].g, lane[d].comm, lane[d].s);
    NCCL(ncclGroupEnd());
}

static void sum_all(void)
{
    NCCL(ncclGroupStart());
    for (int d = 0; d < nranks; d++)
        NCCL(ncclAllReduce(lane[d].sum, lane[d].sum, SUM, ncclFloat, ncclSum, lane[d].comm, lane[d].s));
    NCCL(ncclGroupEnd());
}

static void load(uint64_t seed)
{
    for (int d = 0; d < nranks; d++) {
        float value[SUM];
        for (int i = 0; i < SUM; i++)
            value[i] = (float)(seed * (uint64_t)(d + 1));
        CUDA(cudaSetDevice(d));
        CUDA(cudaStreamSynchronize(lane[d].s));
        gather_load(&lane[d].g, seed, lane[d].s);
        to_device(lane[d].sum, value, sizeof value);
    }
}

static void check_gathered(uint64_t seed, const char *what)
{
    for (int d = 0; d < nranks; d++) {
        CUDA(cudaSetDevice(d));
        gather_check(&lane[d].g, seed, lane[d].s, what);
    }
}

static void check_sums(uint64_t seed, const char *what)
{
    const float want = (float)(seed * (uint64_t)(nranks * (nranks + 1) / 2));
    for (int d = 0; d < nranks; d++) {
        float have[SUM];
        CUDA(cudaSetDevice(d));
        CUDA(cudaStreamSynchronize(lane[d].s));
        CUDA(cudaMemcpy(have, lane[d].sum, sizeof have, cudaMemcpyDeviceToHost));
        EXPECT(have[SUM - 1] == want, "device %d: %s: %g, expected %g", d, what, (double)have[SUM - 1], (double)want);
    }
}

static void call(uint64_t seed)
{
    load(seed);
    gather_all();
    check_gathered(seed, "a call");
}

static void body(struct rank *r)
{
    cudaGraphExec_t exec;
    (void)r;
    open_lanes();
    call(1);
    sum_all();
    CUDA(cudaSetDevice(0));
    capture_begin(lane[0].s);
    part();
    (sums ? sum_all : gather_all)();
    meet();
    exec = graph_executable(capture_end(lane[0].s));
    for (uint64_t i = 0; i < LAUNCHES; i++) {
        load(10 + i);
        meet();
        launch(exec);
        part();
        (sums ? check_sums : check_gathered)(10 + i, "a launch");
        call(100 + i);
    }
    CUDA(cudaSetDevice(0));
    CUDA(cudaGraphExecDestroy(exec));
    close_lanes();
}

int main(int argc, char **argv)
{
    sums = argc > 1 && !strcmp(argv[1], "sums");
    nranks = argc > 2 ? atoi(argv[2]) : 2;
    by_default = argc > 3 && !strcmp(argv[3], "default");
    if ((!sums && (argc < 2 || strcmp(argv[1], "gathers"))) || nranks < 2 || nranks > MOST) {
        fprintf(stderr, "usage: graphs_devices gathers|sums [RANKS [default]]\n");
        return 2;
    }
    return forms_run(1, 30, body, NULL);
}
