/* SPDX-License-Identifier: Apache-2.0 */
/* The two GEMMs of a layer under tensor and sequence parallelism, forward: an all-gather of the activations, a GEMM
 * with this rank's rows of the first weight, something by element, a GEMM with its columns of the second, and a
 * reduce-scatter. Four sizes in random order, 300 times, without a wait of the host within a batch. */
#include "scatter.h"

#include <string.h>

enum { SIZES = 4, STEPS = 300, BATCH = 6, LEARNED = 60 };

struct size {
    int hidden, inner, tokens; /* inner, tokens: of a rank */
};
static const struct size sizes[SIZES] = {{16, 24, 10}, {24, 8, 3}, {8, 32, 17}, {33, 16, 1}};

struct layer {
    struct size s;
    int all; /* tokens */
    uint16_t *x, *whole, *up, *y, *z, *down, *c, *result;
};

/* One step in flight. */
struct step {
    struct layer *l;
    uint64_t seed;
    uint16_t *in, *out; /* pinned: x, up, down; the result */
};

static uint16_t *device(int a, int b)
{
    uint16_t *p;
    CUDA(cudaMalloc((void **)&p, (size_t)(a * b) * 2));
    return p;
}

static void layer_open(struct layer *l, const struct world *w, const struct size *s)
{
    *l = (struct layer){.s = *s, .all = s->tokens * w->nranks};
    l->x = device(s->hidden, s->tokens);
    l->whole = device(s->hidden, l->all);
    l->up = device(s->hidden, s->inner);
    l->y = device(s->inner, l->all);
    l->z = device(s->inner, l->all);
    l->down = device(s->inner, s->hidden);
    l->c = device(s->hidden, l->all);
    l->result = device(s->hidden, s->tokens);
}

static void layer_close(struct layer *l)
{
    uint16_t *const all[] = {l->x, l->whole, l->up, l->y, l->z, l->down, l->c, l->result};
    for (int i = 0; i < LENGTH(all); i++)
        CUDA(cudaFree(all[i]));
}

static int value(const struct step *p, int rank, int what, int i)
{
    return integer((p->seed * 16 + (uint64_t)rank) * 4 + (uint64_t)what, (uint64_t)i, 1);
}

static uint16_t *put(const struct step *p, int rank, int what, int n, uint16_t *to, uint16_t *device_to, cudaStream_t s)
{
    for (int i = 0; i < n; i++)
        elem_put(BF16, (uint8_t *)to, (size_t)i, value(p, rank, what, i));
    CUDA(cudaMemcpyAsync(device_to, to, (size_t)n * 2, cudaMemcpyHostToDevice, s));
    return to + n;
}

static void multiply(const struct world *w, bool ta, int m, int n, int k, const uint16_t *a, const uint16_t *b,
                     uint16_t *c)
{
    const float one = 1, zero = 0;
    BLAS(cublasSetStream(w->blas, w->s));
    BLAS(cublasSetPointerMode(w->blas, CUBLAS_POINTER_MODE_HOST));
    BLAS(cublasGemmEx(w->blas, ta ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a, CUDA_R_16BF, ta ? k : m,
                      b, CUDA_R_16BF, k, &zero, c, CUDA_R_16BF, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

static void load(struct world *w, struct step *p)
{
    struct layer *l = p->l;
    const struct size *s = &l->s;
    uint16_t *at = put(p, w->rank, 0, s->hidden * s->tokens, p->in, l->x, w->s);
    at = put(p, w->rank, 1, s->hidden * s->inner, at, l->up, w->s);
    put(p, w->rank, 2, s->inner * s->hidden, at, l->down, w->s);
    CUDA(cudaMemsetAsync(l->result, 0x7b, (size_t)(s->hidden * s->tokens) * 2, w->s));
    CUDA(cudaMemsetAsync(l->c, 0x7b, (size_t)(s->hidden * l->all) * 2, w->s));
}

static void enqueue(struct world *w, const struct layer *l)
{
    const struct size *s = &l->s;
    NCCL(ncclAllGather(l->x, l->whole, (size_t)(s->hidden * s->tokens), ncclBfloat16, w->comm, w->s));
    multiply(w, true, s->inner, l->all, s->hidden, l->up, l->whole, l->y);
    CUDA(cudaMemcpyAsync(l->z, l->y, (size_t)(s->inner * l->all) * 2, cudaMemcpyDeviceToDevice, w->s));
    multiply(w, true, s->hidden, l->all, s->inner, l->down, l->z, l->c);
    NCCL(ncclReduceScatter(l->c, l->result, (size_t)(s->hidden * s->tokens), ncclBfloat16, ncclSum, w->comm, w->s));
}

/* By the graph, or as calls (NULL). */
static void run(struct world *w, struct step *p, cudaGraphExec_t exec)
{
    const struct layer *l = p->l;
    load(w, p);
    if (exec)
        CUDA(cudaGraphLaunch(exec, w->s));
    else
        enqueue(w, l);
    CUDA(cudaMemcpyAsync(p->out, l->result, (size_t)(l->s.hidden * l->s.tokens) * 2, cudaMemcpyDeviceToHost, w->s));
}

/* This rank's tokens of the result: sums over all ranks' inner parts. */
static void expect(const struct world *w, const struct step *p, uint16_t *want)
{
    const struct size *s = &p->l->s;
    int y[64], *sum = calloc((size_t)(s->hidden * s->tokens), sizeof *sum);
    for (int r = 0; r < w->nranks; r++)
        for (int token = 0; token < s->tokens; token++) {
            for (int i = 0; i < s->inner; i++) {
                y[i] = 0;
                for (int h = 0; h < s->hidden; h++)
                    y[i] += value(p, r, 1, i * s->hidden + h) * value(p, w->rank, 0, token * s->hidden + h);
            }
            for (int h = 0; h < s->hidden; h++)
                for (int i = 0; i < s->inner; i++)
                    sum[token * s->hidden + h] += value(p, r, 2, h * s->inner + i) * y[i];
        }
    for (int i = 0; i < s->hidden * s->tokens; i++)
        elem_put(BF16, (uint8_t *)want, (size_t)i, sum[i]);
    free(sum);
}

static void check(const struct world *w, const struct step *p, const char *what)
{
    const int n = p->l->s.hidden * p->l->s.tokens;
    uint16_t *want = malloc((size_t)n * 2);
    int i = 0;
    expect(w, p, want);
    while (i < n && p->out[i] == want[i])
        i++;
    EXPECT(i == n, "rank %d of %d: %s: step %lu, hidden %d: element %d of %d is %#x, expected %#x", w->rank, w->nranks,
           what, (unsigned long)p->seed, p->l->s.hidden, i, n, p->out[i], want[i]);
    free(want);
}

static cudaGraphExec_t captured(struct world *w, const struct layer *l)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(w->s, cudaStreamCaptureModeThreadLocal));
    enqueue(w, l);
    CUDA(cudaStreamEndCapture(w->s, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

/* `arg`: after some steps by a graph of each size, and one time in four as before. */
static void body(struct world *w, const struct scatter_case *c)
{
    struct layer l[SIZES];
    struct step p[BATCH];
    cudaGraphExec_t exec[SIZES] = {NULL};
    uint64_t seed = 0;
    for (int i = 0; i < SIZES; i++)
        layer_open(&l[i], w, &sizes[i]);
    for (int i = 0; i < BATCH; i++) {
        CUDA(cudaMallocHost((void **)&p[i].in, 1 << 14));
        CUDA(cudaMallocHost((void **)&p[i].out, 1 << 14));
    }
    if (c->arg)
        nccl_connects(w->comm, w->s);
    for (int step = 0; step < STEPS; step += BATCH) {
        for (int i = 0; i < SIZES && c->arg && step == LEARNED; i++)
            exec[i] = captured(w, &l[i]);
        for (int i = 0; i < BATCH; i++) {
            const int at = (int)(hash64(99, (uint64_t)(step + i)) % SIZES);
            p[i].l = &l[at];
            p[i].seed = ++seed;
            run(w, &p[i], (step + i) % 4 ? exec[at] : NULL);
        }
        CUDA(cudaStreamSynchronize(w->s));
        for (int i = 0; i < BATCH; i++)
            check(w, &p[i], c->name);
    }
    for (int i = 0; i < SIZES; i++) {
        if (exec[i])
            CUDA(cudaGraphExecDestroy(exec[i]));
        layer_close(&l[i]);
    }
    for (int i = 0; i < BATCH; i++) {
        CUDA(cudaFreeHost(p[i].in));
        CUDA(cudaFreeHost(p[i].out));
    }
}

const struct scatter_case loop_cases[] = {{.name = "loop", .list = "loop", .body = body},
                                          {.name = "graph-loop", .list = "graphs", .body = body, .arg = &sizes},
                                          {.name = NULL}};
