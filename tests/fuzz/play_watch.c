/* SPDX-License-Identifier: Apache-2.0 */
#include "play.h"

#include <pthread.h>
#include <time.h>

#define POLL_MS 5
#define STUCK_MS 1500  /* nothing moves for so long: the rank will not come back */
#define SILENT_MS 8000 /* a dead rank is to be told of within this time, on a machine with other work */
#define ABORT_MS 5000  /* ncclCommAbort returns within 2 s; the rest is for such a machine */

int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The victim has never made this call: no rank can complete it. */
static bool never_made(const struct plan *plan, const struct call *c)
{
    const int at = c->op[plan->victim], fate = plan->fate_op;
    return at > fate && (plan->ops[fate].stream < 0 || plan->ops[fate].stream == plan->ops[at].stream);
}

/* FUZZ_SCATTERS_TOLD, FUZZ_REDUCES_TOLD in the environment: slipring takes all reduce-scatters, all-reduces, that it
 * can. */
static bool rings(const struct call *c)
{
    const bool adds = (c->redop == ncclSum || c->redop == ncclAvg) && is_float(c->type);
    return c->kind == OP_GATHER ||
           (is_sum(c) && adds && getenv(c->kind == OP_SCATTER ? "FUZZ_SCATTERS_TOLD" : "FUZZ_REDUCES_TOLD"));
}

static bool with_victim(const struct plan *plan, const struct call *c, int rank)
{
    const struct team *team = &plan->team[c->comm];
    return rings(c) && c->alone && team->colour[rank] == team->colour[plan->victim] && c->op[rank] >= 0 &&
           !plan->ops[c->op[rank]].captured;
}

/* A communicator that has gathered before has begun a gather that can not end: somebody has to tell. Of what NCCL moves
 * itself nothing is said. */
static bool must_be_told(const struct player *p)
{
    const struct plan *plan = p->plan;
    const int at = p->board->at[p->rank];
    bool before[COMMS] = {false};
    for (int i = 0; i < plan->ncalls; i++) {
        const struct call *c = &plan->calls[i];
        if (!with_victim(plan, c, p->rank) || c->op[p->rank] >= at)
            continue;
        if (before[c->comm] && never_made(plan, c))
            return true;
        if (c->op[plan->victim] < plan->fate_op && plan->ops[c->op[plan->victim]].step < plan->ops[plan->fate_op].step)
            before[c->comm] = true;
    }
    return false;
}

static bool has_error(ncclComm_t comm)
{
    ncclResult_t error = ncclSuccess;
    NCCL(ncclCommGetAsyncError(comm, &error));
    return error != ncclSuccess;
}

bool player_sees_error(struct player *p)
{
    pthread_mutex_lock(&p->comm_lock);
    bool error = p->saw_error;
    for (int c = 0; c < p->plan->ncomms; c++)
        error = error || (p->comm[c] && has_error(p->comm[c]));
    pthread_mutex_unlock(&p->comm_lock);
    return error;
}

/* From here on nobody asks it any more. */
static ncclComm_t take(struct player *p, int comm)
{
    pthread_mutex_lock(&p->comm_lock);
    ncclComm_t taken = p->comm[comm];
    p->saw_error |= has_error(taken);
    p->comm[comm] = NULL;
    pthread_mutex_unlock(&p->comm_lock);
    return taken;
}

/* What is complete now was completed for somebody who had not been told. */
static void note_good(struct player *p)
{
    const unsigned calls = p->in_nccl, gemms = p->in_gemm;
    const int n = p->nlooked;
    bool good[n + 1];
    for (int i = 0; i < n; i++)
        good[i] = cudaEventQuery(p->looked[i].event) == cudaSuccess;
    if (calls % 2 || calls != p->in_nccl || p->told)
        return; /* a call may just have told */
    if ((gemms % 2 || gemms != p->in_gemm) && player_sees_error(p))
        return; /* and so may a GEMM, but only behind an error */
    for (int i = 0; i < n; i++)
        p->looked[i].good |= good[i];
}

static void abort_all(struct player *p)
{
    p->aborting = true;
    p->board->aborted = 1;
    for (int ms = 0; ms < 500 && p->in_nccl % 2; ms += POLL_MS) /* a call that hangs is ended by the abort */
        sleep_ms(POLL_MS);
    player_drop_graphs(p);
    player_leave(p);
}

static void wait_for_error(struct player *p)
{
    const int64_t gone = now_ms();
    int64_t moved = gone;
    int at = -1;
    while (!p->done && !p->told) {
        if (at != p->board->at[p->rank]) {
            at = p->board->at[p->rank];
            moved = now_ms();
        }
        const bool dies = p->plan->fate == DIES, must = dies && getenv("FUZZ_MUST_TELL") && must_be_told(p);
        if (dies && player_sees_error(p))
            return;
        if (now_ms() - moved > (must ? SILENT_MS : STUCK_MS)) {
            EXPECT(!must, "rank %d: operation %d does not end, rank %d is dead, and nobody tells", p->rank, at,
                   p->plan->victim);
            return;
        }
        sleep_ms(POLL_MS);
    }
}

static void *watch(void *one)
{
    struct player *p = one;
    CUDA(cudaSetDevice(rank_device(p->rank)));
    while (!p->board->gone && !p->done)
        sleep_ms(POLL_MS);
    if (!p->done)
        wait_for_error(p);
    if (!p->done)
        sleep_ms((unsigned)(hash64(p->plan->seed, 44) % 300)); /* streams have to hold until somebody aborts */
    note_good(p);
    if (!p->done)
        abort_all(p);
    return NULL;
}

void player_play_watched(struct player *p)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, watch, p) == 0, "no thread");
    player_play(p);
    p->done = player_trusts(p);
    if (p->capturing >= 0) { /* ncclCommAbort waits for the end of what holds a call of NCCL's */
        cudaGraph_t graph = NULL;
        (void)cudaStreamEndCapture(p->stream[p->capturing], &graph);
        if (graph)
            CUDA(cudaGraphDestroy(graph));
    }
    pthread_join(thread, NULL);
}

struct leaving {
    struct player *p;
    int comm, ms;
};

static void leave(void *one)
{
    struct leaving *l = one;
    ncclComm_t comm = take(l->p, l->comm);
    const int64_t begin = now_ms();
    CUDA(cudaSetDevice(rank_device(l->p->rank)));
    if (l->p->plan->fate == LIVES)
        NCCL(ncclCommDestroy(comm));
    else
        NCCL(ncclCommAbort(comm));
    l->ms = (int)(now_ms() - begin);
}

static bool captures(const struct player *p)
{
    for (int i = 0; i < p->plan->nops; i++)
        if (p->plan->ops[i].rank == p->rank && p->plan->ops[i].kind == OP_CAPTURE)
            return true;
    return false;
}

void player_leave(struct player *p)
{
    const bool lives = p->plan->fate == LIVES, at_once = !lives && captures(p);
    struct leaving all[COMMS];
    int n = 0;
    for (int c = p->plan->ncomms - 1; c >= 0; c--)
        if (p->comm[c])
            all[n++] = (struct leaving){p, c, 0};
    for (int i = 0; i < (at_once ? 0 : n); i++)
        leave(&all[i]);
    if (at_once && n > 0)
        on_threads(n, all, sizeof *all, leave);
    for (int i = 0; i < n; i++) {
        EXPECT(lives || all[i].ms <= ABORT_MS, "rank %d: ncclCommAbort took %d ms", p->rank, all[i].ms);
        p->slowest_abort_ms = all[i].ms > p->slowest_abort_ms ? all[i].ms : p->slowest_abort_ms;
    }
}
