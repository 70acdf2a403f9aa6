/* SPDX-License-Identifier: Apache-2.0 */
/* A program that opens a library whose calls reach the driver past what is preloaded, and lets it look at what was
 * gathered. The program itself is as any other.
 *
 *   past CASE RANKS [LIBRARY]
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "../programs/ranks.h"
#include "past_library.h"

#ifndef SHARD
#define SHARD ((size_t)70001)
#endif

struct past_order past_order __attribute__((visibility("default")));

static const char *path;

struct test {
    struct rank *r;
    uint8_t *send, *recv, *host;
    size_t all;
    int round;
    useconds_t patience; /* for peers to close what they have mapped */
};

static const struct past_calls *open_library(int mode)
{
    void *library = dlopen(path, mode);
    CHECK(library, "%s", dlerror());
    const struct past_calls *calls = dlsym(library, "past_calls");
    CHECK(calls, "%s", dlerror());
    return calls;
}

static void load(struct test *t)
{
    t->round++;
    for (size_t i = 0; i < SHARD; i++)
        t->host[i] = (uint8_t)hash64((uint64_t)(t->round * 100 + t->r->rank), i);
    to_device(t->send, t->host, SHARD);
    memset(t->host, 0xa5, t->all);
    to_device(t->recv, t->host, t->all);
}

/* Enqueues only: nothing here waits for the gather. */
static void gather_on(struct test *t, cudaStream_t stream)
{
    CUDA(cudaStreamSynchronize(stream));
    load(t);
    NCCL(ncclAllGather(t->send, t->recv, SHARD, ncclUint8, t->r->comm, stream));
}

static void gather(struct test *t)
{
    gather_on(t, t->r->stream);
}

static void compare(const struct test *t)
{
    for (size_t i = 0; i < t->all; i++) {
        uint8_t want = (uint8_t)hash64((uint64_t)t->round * 100 + i / SHARD, i % SHARD);
        if (t->host[i] != want)
            fprintf(stderr, "wrong: rank %d, round %d: byte %zu is %02x, expected %02x\n", t->r->rank, t->round, i,
                    t->host[i], want);
        CHECK(t->host[i] == want, "after round %d", t->round);
    }
}

static void read_by(struct test *t, const struct past_calls *calls)
{
    const CUresult r = calls->read(t->host, (CUdeviceptr)(uintptr_t)t->recv, t->all, (CUstream)t->r->stream);
    CHECK(r == CUDA_SUCCESS, "the library's call: %d", (int)r);
    compare(t);
}

static void read_here(struct test *t)
{
    CUDA(cudaMemcpyAsync(t->host, t->recv, t->all, cudaMemcpyDeviceToHost, t->r->stream));
    CUDA(cudaStreamSynchronize(t->r->stream));
    compare(t);
}

/* Opened behind the gather, which is pending. */
static void opened(struct test *t)
{
    gather(t);
    read_by(t, open_library(RTLD_NOW | RTLD_DEEPBIND));
}

/* Opened long before. */
static void before(struct test *t)
{
    const struct past_calls *calls = open_library(RTLD_NOW | RTLD_DEEPBIND);
    for (int i = 0; i < 3; i++) {
        gather(t);
        read_by(t, calls);
    }
}

/* Even before NCCL is first used. */
static void first(struct test *t)
{
    before(t);
}

/* Nothing of it is bound before it is called. */
static void lazily(struct test *t)
{
    const struct past_calls *calls = open_library(RTLD_LAZY | RTLD_DEEPBIND);
    gather(t);
    read_by(t, calls);
}

/* Its constructor looks, before dlopen returns. */
static void constructor(struct test *t)
{
    gather(t);
    past_order = (struct past_order){
        .host = t->host, .at = (CUdeviceptr)(uintptr_t)t->recv, .bytes = t->all, .stream = (CUstream)t->r->stream};
    open_library(RTLD_NOW | RTLD_DEEPBIND);
    CHECK(past_order.result == CUDA_SUCCESS, "the constructor's call: %d", (int)past_order.result);
    compare(t);
}

/* By a function of the C library's handle, which is not followed: the count of objects tells. */
static void unseen(struct test *t)
{
    void *c = dlopen("libc.so.6", RTLD_NOW);
    void *(*real)(const char *, int) = NULL;
    *(void **)&real = c ? dlsym(c, "dlopen") : NULL;
    CHECK(real, "no dlopen");
    void *library = real(path, RTLD_NOW | RTLD_DEEPBIND);
    CHECK(library, "%s", dlerror());
    gather(t);
    read_by(t, dlsym(library, "past_calls"));
}

/* As libraries are opened mostly: nothing is waited for but what is read. */
static void usual(struct test *t)
{
    const struct past_calls *calls = open_library(RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; i < 3; i++) {
        gather(t);
        read_by(t, calls);
    }
}

/* Memory that peers have mapped is given back by the library, and its address is other memory's. */
static void freed(struct test *t)
{
    for (int i = 0; i < 8; i++) {
        gather(t);
        read_here(t);
    }
    NCCL(ncclAllReduce(t->send, t->send, 1, ncclUint8, ncclSum, t->r->comm, t->r->stream)); /* all have come so far */
    CUDA(cudaStreamSynchronize(t->r->stream));
    const struct past_calls *calls = open_library(RTLD_NOW | RTLD_DEEPBIND);
    usleep(t->patience);
    for (int i = 0; i < 4; i++) {
        CHECK(calls->release((CUdeviceptr)(uintptr_t)t->send) == CUDA_SUCCESS, "the library's free");
        CUDA(cudaMalloc((void **)&t->send, SHARD));
        for (int k = 0; k < 3; k++) {
            gather(t);
            read_here(t);
        }
        usleep(t->patience / 4);
    }
}

/* Peers may still have it mapped. */
static void freed_at_once(struct test *t)
{
    t->patience = 0;
    freed(t);
}

/* Nobody waits for peers that will not map it. */
static void registered(struct test *t)
{
    void *handle;
    open_library(RTLD_NOW | RTLD_DEEPBIND);
    NCCL(ncclCommRegister(t->r->comm, t->send, SHARD, &handle));
    gather(t);
    read_here(t);
    NCCL(ncclCommDeregister(t->r->comm, handle));
}

static void *opens(void *path_of_none)
{
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND);
    (void)path_of_none;
    CHECK(library && dlsym(library, "cos"), "%s", dlerror());
    return NULL;
}

/* What calls nothing of CUDA, opened by a thread that does not, either. */
static void harmless(struct test *t)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, opens, NULL) == 0, "no thread");
    pthread_join(thread, NULL);
    usual(t);
}

/* Streams end unseen, and others have their handles. */
static void streams(struct test *t)
{
    const struct past_calls *calls = open_library(RTLD_NOW | RTLD_DEEPBIND);
    for (int i = 0; i < 6; i++) {
        cudaStream_t s;
        CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        gather_on(t, s);
        CHECK(calls->end((CUstream)s) == CUDA_SUCCESS, "the library's end of a stream");
        gather(t);
        read_here(t);
    }
}

/* The same of a stream that the communicator was using when the library came. */
static void stream(struct test *t)
{
    cudaStream_t s;
    CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    gather_on(t, s);
    const struct past_calls *calls = open_library(RTLD_NOW | RTLD_DEEPBIND);
    CHECK(calls->end((CUstream)s) == CUDA_SUCCESS, "the library's end of a stream");
    gather(t);
    read_here(t);
}

/* NCCL connects at its first operation. */
static void connects(struct test *t)
{
    NCCL(ncclAllReduce(t->send, t->send, 1, ncclUint8, ncclSum, t->r->comm, t->r->stream));
    gather(t);
    read_here(t);
}

/* What slipring keeps of freed memory is in nobody's way. */
static void room(struct test *t)
{
    enum { MOST = 40 << 20, TRIES = 400 };
    uint8_t *small = t->send;
    CUdeviceptr p = 0;
    CUDA(cudaMalloc((void **)&t->send, MOST));
    gather(t);
    read_here(t);
    CUDA(cudaFree(t->send));
    t->send = small;
    const struct past_calls *calls = open_library(RTLD_NOW | RTLD_DEEPBIND);
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < TRIES && r == CUDA_ERROR_OUT_OF_MEMORY; i++) {
        r = calls->allocate(&p, MOST);
        usleep(5000);
    }
    if (r != CUDA_SUCCESS)
        fprintf(stderr, "wrong: no room for the library: %d\n", (int)r);
    CHECK(r == CUDA_SUCCESS, "kept");
    CHECK(calls->release(p) == CUDA_SUCCESS, "the library's free");
    connects(t); /* all have had their room: what waits for a peer keeps its memory mapped */
    CUDA(cudaMalloc((void **)&t->send, MOST));
    gather(t);
    read_here(t);
    CUDA(cudaFree(t->send));
    r = calls->allocate(&p, MOST);
    if (r != CUDA_SUCCESS)
        fprintf(stderr, "wrong: no room for the library at once: %d\n", (int)r);
    CHECK(r == CUDA_SUCCESS, "kept");
    CHECK(calls->release(p) == CUDA_SUCCESS, "the library's free");
    t->send = small;
}

/* A capture is begun, ended and launched by the library; it was there before the ranks connected. */
static void captured(struct test *t)
{
    const struct past_calls *calls = open_library(RTLD_NOW | RTLD_DEEPBIND);
    const CUstream s = (CUstream)t->r->stream;
    connects(t);
    load(t);
    CHECK(calls->capture(s) == CUDA_SUCCESS, "the library's capture");
    const ncclResult_t r = ncclAllGather(t->send, t->recv, SHARD, ncclUint8, t->r->comm, t->r->stream);
    if (r != ncclSuccess)
        fprintf(stderr, "wrong: the gather does not see the capture\n");
    CHECK(r == ncclSuccess, "in the library's capture");
    CHECK(calls->launch(s) == CUDA_SUCCESS, "the library's launch");
    read_here(t);
}

/* The program's graph, launched by the library. */
static void launched(struct test *t)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    const struct past_calls *calls = open_library(RTLD_NOW | RTLD_DEEPBIND);
    connects(t);
    load(t);
    CUDA(cudaStreamBeginCapture(t->r->stream, cudaStreamCaptureModeRelaxed));
    NCCL(ncclAllGather(t->send, t->recv, SHARD, ncclUint8, t->r->comm, t->r->stream));
    CUDA(cudaStreamEndCapture(t->r->stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(calls->run((CUgraphExec)exec, (CUstream)t->r->stream) == CUDA_SUCCESS, "the library's launch");
    read_by(t, calls);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
}

/* The library's copy is captured behind a gather that is the ring's. */
static void recorded(struct test *t)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    uint8_t *out;
    CUDA(cudaMalloc((void **)&out, t->all));
    connects(t);
    const struct past_calls *calls = open_library(RTLD_NOW | RTLD_DEEPBIND);
    load(t);
    CUDA(cudaStreamBeginCapture(t->r->stream, cudaStreamCaptureModeRelaxed));
    NCCL(ncclAllGather(t->send, t->recv, SHARD, ncclUint8, t->r->comm, t->r->stream));
    CHECK(calls->copy((CUdeviceptr)(uintptr_t)out, (CUdeviceptr)(uintptr_t)t->recv, t->all, (CUstream)t->r->stream) ==
              CUDA_SUCCESS,
          "the library's copy");
    CUDA(cudaStreamEndCapture(t->r->stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, t->r->stream));
    CUDA(cudaMemcpyAsync(t->host, out, t->all, cudaMemcpyDeviceToHost, t->r->stream));
    CUDA(cudaStreamSynchronize(t->r->stream));
    compare(t);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaFree(out));
}

/* What is in there can not be looked at. */
static void space(struct test *t)
{
    gather(t);
    CHECK(dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW), "%s", dlerror());
    read_here(t);
    gather(t);
    read_here(t);
}

static const struct {
    const char *name;
    void (*run)(struct test *t);
} cases[] = {{"opened", opened},
             {"before", before},
             {"first", first},
             {"lazily", lazily},
             {"constructor", constructor},
             {"unseen", unseen},
             {"usual", usual},
             {"freed", freed},
             {"streams", streams},
             {"stream", stream},
             {"freed-at-once", freed_at_once},
             {"registered", registered},
             {"harmless", harmless},
             {"room", room},
             {"captured", captured},
             {"launched", launched},
             {"recorded", recorded},
             {"space", space}};

static void body(struct rank *r)
{
    const char *name = r->arg;
    struct test t = {.r = r, .all = SHARD * (size_t)r->nranks, .patience = 1000000};
    if (strcmp(name, "first") == 0)
        open_library(RTLD_NOW | RTLD_DEEPBIND);
    rank_open(r);
    t.host = malloc(t.all);
    CUDA(cudaMalloc((void **)&t.send, SHARD));
    CUDA(cudaMalloc((void **)&t.recv, t.all));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, name) == 0)
            cases[i].run(&t);
    CHECK(t.round > 0, "no such case: %s", name);
    rank_close(r);
    CUDA(cudaFree(t.send));
    CUDA(cudaFree(t.recv));
    free(t.host);
}

int main(int argc, char **argv)
{
    path = argc > 3 ? argv[3] : getenv("PAST_LIBRARY");
    return argc >= 3 && path ? ranks_run(atoi(argv[2]), 60, body, argv[1]) : 2;
}
