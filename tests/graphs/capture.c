/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers on capturing streams are recorded, by the ring or, where it can not, by NCCL; those before, beside and after are
 * moved as ever.
 *
 *   capture
 */
#include "../order/forms.h"

#include <string.h>

#define SHARD ((size_t)100000)
#define LATE_MS 40

struct world {
    ncclComm_t comm;
    cudaStream_t s, beside;
    struct gather in, out; /* `in`: of the graph; `out`: moved */
    uint8_t *copy;
    uint64_t seed;
    bool late;
};

static void moved(struct world *w, cudaStream_t stream, const char *what)
{
    w->seed++;
    gather_load(&w->out, w->seed, stream);
    gather_call(&w->out, w->comm, stream);
    gather_check(&w->out, w->seed, stream, what);
}

/* gather; copy of its result. Beside it, while it is recorded, another gather runs. */
static cudaGraphExec_t record(struct world *w, enum cudaStreamCaptureMode mode, size_t all)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    w->seed++;
    gather_load(&w->out, w->seed, w->beside);
    CUDA(cudaStreamBeginCapture(w->s, mode));
    gather_call(&w->in, w->comm, w->s);
    if (mode != cudaStreamCaptureModeGlobal) {
        gather_call(&w->out, w->comm, w->beside);
        CUDA(cudaMemcpyAsync(w->out.host, w->out.recv, all, cudaMemcpyDeviceToHost, w->beside));
    }
    CUDA(cudaMemcpyAsync(w->copy, w->in.recv, all, cudaMemcpyDeviceToDevice, w->s));
    CUDA(cudaStreamEndCapture(w->s, &graph));
    if (mode == cudaStreamCaptureModeGlobal) {
        gather_call(&w->out, w->comm, w->beside);
        CUDA(cudaMemcpyAsync(w->out.host, w->out.recv, all, cudaMemcpyDeviceToHost, w->beside));
    }
    CUDA(cudaStreamSynchronize(w->beside));
    bytes_check(&w->out, w->out.host, w->seed, "beside a capture");
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

static void replay(struct world *w, cudaGraphExec_t exec, size_t all)
{
    for (int i = 0; i < 3; i++) {
        w->seed++;
        gather_load(&w->in, w->seed, w->s);
        CUDA(cudaMemsetAsync(w->copy, 0, all, w->s));
        CUDA(cudaGraphLaunch(exec, w->s));
        CUDA(cudaMemcpyAsync(w->in.host, w->copy, all, cudaMemcpyDeviceToHost, w->s));
        CUDA(cudaStreamSynchronize(w->s));
        bytes_check(&w->in, w->in.host, w->seed, "replayed");
        moved(w, w->s, "after a replay");
    }
}

/* What is recorded right after a gather reads what it gathered. */
static void capture_behind(struct world *w, size_t all)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    w->seed++;
    gather_load(&w->out, w->seed, w->s);
    CUDA(cudaStreamSynchronize(w->s));
    if (w->late)
        hold(w->s, LATE_MS);
    gather_call(&w->out, w->comm, w->s);
    CUDA(cudaStreamBeginCapture(w->s, cudaStreamCaptureModeThreadLocal));
    CUDA(cudaMemcpyAsync(w->copy, w->out.recv, all, cudaMemcpyDeviceToDevice, w->s));
    CUDA(cudaStreamEndCapture(w->s, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, w->s));
    CUDA(cudaMemcpyAsync(w->out.host, w->copy, all, cudaMemcpyDeviceToHost, w->s));
    CUDA(cudaStreamSynchronize(w->s));
    bytes_check(&w->out, w->out.host, w->seed, "a graph behind a gather");
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
}

static void body(struct rank *r)
{
    static const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeRelaxed, cudaStreamCaptureModeThreadLocal,
                                                       cudaStreamCaptureModeGlobal};
    struct world w = {0};
    size_t all = SHARD * (size_t)r->nranks;
    NCCL(ncclCommInitRank(&w.comm, r->nranks, r->id, r->rank));
    CUDA(cudaStreamCreateWithFlags(&w.s, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&w.beside, cudaStreamNonBlocking));
    gather_alloc(&w.in, r->rank, r->nranks, SHARD);
    gather_alloc(&w.out, r->rank, r->nranks, SHARD);
    CUDA(cudaMalloc((void **)&w.copy, all));
    for (int m = 0; m < LENGTH(modes); m++) {
        moved(&w, w.s, "before a capture");
        cudaGraphExec_t exec = record(&w, modes[m], all);
        replay(&w, exec, all);
        CUDA(cudaGraphExecDestroy(exec));
        w.late = m % r->nranks == r->rank;
        capture_behind(&w, all);
    }
    CUDA(cudaFree(w.copy));
    gather_free(&w.in);
    gather_free(&w.out);
    CUDA(cudaStreamDestroy(w.s));
    CUDA(cudaStreamDestroy(w.beside));
    NCCL(ncclCommDestroy(w.comm));
}

int main(void)
{
    return forms_run(2, 60, body, NULL);
}
