/* SPDX-License-Identifier: Apache-2.0 */
/* Drivers that can not do what captured gathers need, on all ranks or on one: gathers in graphs and outside of them are
 * right, and each rank's log says once why the former stay with NCCL, if it is this rank's driver.
 *
 *   graphs_off RANKS WHO FAULT STEP [captured]   WHO: all, none, or a rank; FAULT: of SOFTGPU_FAIL; STEP: what the log names
 *   graphs_off RANKS global                      a thread captures in the global mode while the ranks connect
 *   graphs_off RANKS waits                       a thread synchronises its device while the ranks connect
 *
 * captured: the first gather of the communicator is in a graph. */
#include "../order/forms.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define SHARD ((size_t)64 << 10)
#define REPLAYS 3

static const char *who, *fault, *step;
static bool captured;

static bool has_fault(int rank)
{
    return fault && (strcmp(who, "all") == 0 || (strcmp(who, "none") != 0 && atoi(who) == rank));
}

static void begin(int rank)
{
    if (has_fault(rank))
        setenv("SOFTGPU_FAIL", fault, 1);
}

/* Lines of this process's log with both texts; -1: there is no log. */
static int lines(const char *event, const char *field)
{
    const char *form = getenv("SLIPRING_LOG_FILE"), *pid = form ? strstr(form, "%p") : NULL;
    char name[512], line[4096];
    int n = 0;
    if (!pid)
        return -1;
    snprintf(name, sizeof name, "%.*s%d%s", (int)(pid - form), form, (int)getpid(), pid + 2);
    FILE *f = fopen(name, "r");
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, event) && strstr(line, field);
    if (f)
        fclose(f);
    return f ? n : -1;
}

static void check_log(int rank)
{
    char field[128];
    snprintf(field, sizeof field, "\"step\":\"%s\"", has_fault(rank) ? step : "");
    const int all = lines("\"graphs_off\"", ""), named = lines("\"graphs_off\"", field);
    if (all < 0)
        return; /* without slipring */
    EXPECT(all == (has_fault(rank) ? 1 : 0), "rank %d: graphs_off is in the log %d times", rank, all);
    EXPECT(named == all, "rank %d: graphs_off does not name %s", rank, step);
}

struct world {
    struct rank *r;
    struct gather g;
    uint64_t seed;
};

static void eager(struct world *w, const char *what)
{
    w->seed++;
    gather_load(&w->g, w->seed, w->r->stream);
    gather_call(&w->g, w->r->comm, w->r->stream);
    gather_check(&w->g, w->seed, w->r->stream, what);
}

static void in_graph(struct world *w)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(w->r->stream, cudaStreamCaptureModeThreadLocal));
    gather_call(&w->g, w->r->comm, w->r->stream);
    CUDA(cudaStreamEndCapture(w->r->stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    for (int i = 0; i < REPLAYS; i++) {
        w->seed++;
        gather_load(&w->g, w->seed, w->r->stream);
        CUDA(cudaGraphLaunch(exec, w->r->stream));
        gather_check(&w->g, w->seed, w->r->stream, "a replay");
    }
    CUDA(cudaGraphExecDestroy(exec));
}

static void gathers(struct rank *r)
{
    struct world w = {.r = r};
    gather_alloc(&w.g, r->rank, r->nranks, SHARD);
    nccl_connects(r->comm, r->stream);
    if (!captured)
        eager(&w, "before a capture");
    in_graph(&w);
    eager(&w, "behind a capture");
    gather_free(&w.g);
}

/* The second communicator tries nothing, and says nothing. */
static void off(struct rank *r)
{
    ncclComm_t first = r->comm;
    gathers(r);
    NCCL(ncclCommSplit(first, 0, r->rank, &r->comm, NULL));
    gathers(r);
    NCCL(ncclCommDestroy(r->comm));
    r->comm = first;
    check_log(r->rank);
}

/* ---- what a second thread does meanwhile ---- */

static int device; /* of this process's rank */
static atomic_bool over;

static void *capture_globally(void *started)
{
    cudaStream_t s;
    cudaGraph_t graph;
    uint8_t *p;
    CUDA(cudaSetDevice(device));
    CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&p, 64));
    CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CUDA(cudaMemsetAsync(p, 1, 64, s));
    atomic_store((atomic_bool *)started, true);
    while (!atomic_load(&over))
        sleep_ms(1);
    CUDA(cudaMemsetAsync(p, 2, 64, s));
    CUDA(cudaStreamEndCapture(s, &graph));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaFree(p));
    CUDA(cudaStreamDestroy(s));
    return NULL;
}

/* Which is refused while anything in the context captures. */
static void *synchronize(void *started)
{
    CUDA(cudaSetDevice(device));
    while (!atomic_load(&over)) {
        CUDA(cudaDeviceSynchronize());
        atomic_store((atomic_bool *)started, true);
    }
    return NULL;
}

/* The thread has begun before the ranks connect, and goes on until they have. */
static void beside(struct rank *r, void *(*body)(void *))
{
    struct world w = {.r = r, .seed = 1};
    pthread_t thread;
    atomic_bool started = false;
    CUDA(cudaGetDevice(&device));
    gather_alloc(&w.g, r->rank, r->nranks, SHARD);
    gather_load(&w.g, w.seed, r->stream);
    CUDA(cudaStreamSynchronize(r->stream));
    if (pthread_create(&thread, NULL, body, &started))
        DIE(3, "no thread");
    while (!atomic_load(&started))
        sleep_ms(1);
    gather_call(&w.g, r->comm, r->stream);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    gather_check(&w.g, w.seed, r->stream, "while a thread captures");
    CUDA(cudaGetLastError());
    nccl_connects(r->comm, r->stream);
    in_graph(&w);
    gather_free(&w.g);
    check_log(r->rank);
}

static void body(struct rank *r)
{
    rank_open(r);
    if (strcmp(who, "global") == 0)
        beside(r, capture_globally);
    else if (strcmp(who, "waits") == 0)
        beside(r, synchronize);
    else
        off(r);
    rank_close(r);
}

int main(int argc, char **argv)
{
    const int n = argc > 2 ? atoi(argv[1]) : 0;
    if (n < 2 || n > 8 || argc == 4)
        return 2;
    who = argv[2];
    fault = argc > 4 ? argv[3] : NULL;
    step = argc > 4 ? argv[4] : "";
    captured = argc > 5;
    ranks_begin = begin;
    return forms_run(n, 60, body, NULL);
}
