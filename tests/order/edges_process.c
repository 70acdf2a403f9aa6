/* SPDX-License-Identifier: Apache-2.0 */
/* Order between processes: the memory's owner and a peer that has it mapped. */
#include "edges.h"
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void give(struct edge_env *e)
{
    CU(cuIpcGetMemHandle(&e->mail->memory, e->x));
    post(e, 1);
}

static void take(struct edge_env *e)
{
    await(e, 1);
    CU(cuIpcOpenMemHandle(&e->x, e->mail->memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

/* ---- a flag word in memory that both have registered ---- */

static void flag_owner(struct edge_env *e)
{
    give(e);
    fill(e, e->a);
    CU(cuStreamWriteValue32(e->a, e->flag, 1, 0));
    settle(e, e->a);
    post(e, 2);
    await(e, 3);
}

static void flag_peer(struct edge_env *e)
{
    take(e);
    await(e, 2);
    if (e->edge)
        CU(cuStreamWaitValue32(e->b, e->flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    look(e, e->b);
    CU(cuStreamSynchronize(e->b));
    CU(cuIpcCloseMemHandle(e->x));
    post(e, 3);
}

/* ---- the other way round: the owner writes again when the peer has read ---- */

static void done_owner(struct edge_env *e)
{
    give(e);
    await(e, 2);
    if (e->edge)
        CU(cuStreamWaitValue32(e->a, e->flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    fill(e, e->a);
    post(e, 3);
    await(e, 4);
}

static void done_peer(struct edge_env *e)
{
    take(e);
    look(e, e->b);
    CU(cuStreamWriteValue32(e->b, e->flag, 1, 0));
    settle(e, e->b);
    post(e, 2);
    await(e, 3);
    CU(cuCtxSynchronize());
    CU(cuIpcCloseMemHandle(e->x));
    post(e, 4);
}

/* ---- an interprocess event ---- */

static void event_owner(struct edge_env *e)
{
    CUevent ev;

    CU(cuEventCreate(&ev, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CU(cuIpcGetEventHandle(&e->mail->event, ev));
    give(e);
    if (!e->edge)
        CU(cuEventRecord(ev, e->a));
    fill(e, e->a);
    if (e->edge)
        CU(cuEventRecord(ev, e->a));
    settle(e, e->a);
    post(e, 2);
    await(e, 3);
}

static void event_peer(struct edge_env *e)
{
    CUevent ev;

    take(e);
    CU(cuIpcOpenEventHandle(&ev, e->mail->event));
    await(e, 2);
    CU(cuStreamWaitEvent(e->b, ev, 0));
    look(e, e->b);
    CU(cuStreamSynchronize(e->b));
    CU(cuIpcCloseMemHandle(e->x));
    post(e, 3);
}

/* ---- the hosts: one has waited for its device and tells the other, by means that nobody sees ---- */

static void hosts_owner(struct edge_env *e)
{
    give(e);
    fill(e, e->a);
    if (e->edge)
        CU(cuStreamSynchronize(e->a));
    settle(e, e->a);
    post(e, 2);
    await(e, 3);
}

static void hosts_peer(struct edge_env *e)
{
    take(e);
    await(e, 2);
    look(e, e->b);
    CU(cuStreamSynchronize(e->b));
    CU(cuIpcCloseMemHandle(e->x));
    post(e, 3);
}

/* ---- a peer that was killed does nothing any more; one that ends by itself orders nothing by that ---- */

static void gone_owner(struct edge_env *e)
{
    give(e);
    await(e, 2);
    while (!kill(e->mail->pid, 0))
        usleep(100);
    fill(e, e->a);
}

static void gone_peer(struct edge_env *e)
{
    take(e);
    look(e, e->b);
    settle(e, e->b);
    e->mail->pid = getpid();
    post(e, 2);
    if (e->edge)
        kill(getpid(), SIGKILL);
    exit(0);
}

/* ---- a process that dies with the oracle's lock: the others go on, and are judged ---- */

static void killed(struct edge_env *e)
{
    int status = 1;

    fill(e, e->a);
    settle(e, e->a);
    pid_t pid = fork();
    if (!pid)
        die_with_lock();
    if (waitpid(pid, &status, 0) != pid || status)
        exit(4);
    look(e, e->b); /* what was before is forgotten */
    CU(cuStreamSynchronize(e->b));
    fill(e, e->a);
    look(e, e->edge ? e->a : e->b);
}

const struct edge_case edges_process[] = {
    {.name = "flag", .body = flag_owner, .peer = flag_peer},
    {.name = "done", .body = done_owner, .peer = done_peer},
    {.name = "ipc-event", .body = event_owner, .peer = event_peer},
    {.name = "hosts", .body = hosts_owner, .peer = hosts_peer},
    {.name = "gone", .body = gone_owner, .peer = gone_peer},
    {.name = "killed", .body = killed},
    {.name = NULL},
};
