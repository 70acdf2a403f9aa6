/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that race with a write of what they read: only races whose bytes are used count. Here the
 * edge is what keeps those bytes from being used. */
#include "edges.h"
#include <stddef.h>

static void overwrite(CUdeviceptr at, size_t bytes, CUstream s)
{
    CU(cuMemsetD8Async(at, 2, bytes, s));
}

/* Reads, and no host waits for that. */
static void download(CUdeviceptr at, size_t bytes, CUstream s)
{
    void *host;

    CU(cuMemHostAlloc(&host, bytes, 0));
    CU(cuMemcpyDtoHAsync(host, at, bytes, s));
}

static CUdeviceptr more(void)
{
    CUdeviceptr p;

    CU(cuMemAlloc(&p, BYTES));
    return p;
}

/* ---- the race is seen before what becomes of the bytes ---- */

static void race(struct edge_env *e)
{
    fill(e, e->a);
    settle(e, e->a);
    look(e, e->b);
}

static void overwritten(struct edge_env *e)
{
    race(e);
    if (e->edge)
        overwrite(e->y, BYTES, e->b);
    download(e->y, BYTES, e->b);
}

static void stays(struct edge_env *e)
{
    race(e);
    if (e->edge)
        overwrite(e->y, BYTES, e->b);
}

static void copied_on(struct edge_env *e)
{
    CUdeviceptr z = more();

    race(e);
    if (!e->edge)
        CU(cuMemcpyAsync(z, e->y, 8, e->b));
    overwrite(z, 8, e->b);
    overwrite(e->y, BYTES, e->b);
}

static void overwritten_in_parts(struct edge_env *e)
{
    race(e);
    overwrite(e->y + BYTES / 2, BYTES / 2, e->b);
    overwrite(e->y, BYTES / 2 - (e->edge ? 0 : 1), e->b);
    download(e->y, BYTES, e->b);
}

/* Only the second half of what the copy reads is written meanwhile. */
static void half_a_race(struct edge_env *e)
{
    overwrite(e->x + BYTES / 2, BYTES / 2, e->a);
    settle(e, e->a);
    look(e, e->b);
    download(e->y, BYTES / 2 + (e->edge ? 0 : 1), e->b);
    overwrite(e->y + BYTES / 2, BYTES / 2, e->b);
    download(e->y, BYTES, e->b);
}

/* Who overwrites has to come after the copy. */
static void overwritten_unordered(struct edge_env *e)
{
    race(e);
    if (e->edge)
        follow(e, e->b, e->a);
    settle(e, e->b);
    CU(cuMemsetD32Async(e->y, 2, BYTES / 4, e->a));
}

static void freed(struct edge_env *e)
{
    CUdeviceptr z = more();

    race(e);
    CU(cuMemFree(e->edge ? e->y : z));
}

/* ---- it is seen later ---- */

static void late_overwritten(struct edge_env *e)
{
    look(e, e->b);
    if (!e->edge)
        download(e->y + 5, 1, e->b);
    overwrite(e->y, BYTES, e->b);
    settle(e, e->b);
    fill(e, e->a);
}

static void late_stays(struct edge_env *e)
{
    look(e, e->b);
    settle(e, e->b);
    fill(e, e->a);
    settle(e, e->a);
    if (e->edge)
        overwrite(e->y, BYTES, e->b);
}

/* The bytes on both sides of those that raced are used. */
static void late_gap(struct edge_env *e)
{
    look(e, e->b);
    download(e->y, 100, e->b);
    download(e->y + 200, 100, e->b);
    overwrite(e->y, BYTES, e->b);
    settle(e, e->b);
    overwrite(e->x + 100, e->edge ? 100 : 101, e->a);
}

static void late_freed(struct edge_env *e)
{
    CU(cuMemAllocAsync(&e->y, BYTES, e->b));
    look(e, e->b);
    if (!e->edge)
        download(e->y, BYTES, e->b);
    CU(cuMemFreeAsync(e->y, e->b));
    settle(e, e->b);
    fill(e, e->a);
}

/* ---- what is judged as ever ---- */

/* A copy that comes to nothing does not stand for an earlier read. */
static void behind_a_read(struct edge_env *e)
{
    if (!e->edge)
        download(e->x, BYTES, e->b);
    look(e, e->b);
    overwrite(e->y, BYTES, e->b);
    settle(e, e->b);
    fill(e, e->a);
}

/* Neither do many of them, for one whose bytes were used. */
static void among_many(struct edge_env *e)
{
    for (int i = 0; i < 50; i++) {
        look(e, e->b);
        if (!e->edge && i == 20)
            download(e->y, BYTES, e->b);
        overwrite(e->y, BYTES, e->b);
    }
    settle(e, e->b);
    fill(e, e->a);
}

/* Many that have been used, and one behind that was not. As many as would leave no room for it if
 * none stood for others. */
static void behind_many(struct edge_env *e)
{
    for (int i = 0; i < 56; i++) {
        look(e, e->b);
        download(e->y, BYTES, e->b);
    }
    if (e->edge)
        follow(e, e->b, e->a);
    look(e, e->b);
    overwrite(e->y, BYTES, e->b);
    settle(e, e->b);
    fill(e, e->a);
}

/* More copies than the histories keep reads, and one of them stays. */
static void many_stay(struct edge_env *e)
{
    CUdeviceptr z[30];

    for (int i = 0; i < 30; i++) {
        z[i] = more();
        CU(cuMemcpyDtoDAsync(z[i], e->x, BYTES, e->b));
    }
    if (e->edge)
        follow(e, e->b, e->a);
    settle(e, e->b);
    fill(e, e->a);
    for (int i = 0; i < 30; i++)
        if (i != 20)
            overwrite(z[i], BYTES, e->b);
}

/* More races than can be suspended. */
static void many_race(struct edge_env *e)
{
    fill(e, e->a);
    settle(e, e->a);
    for (size_t i = 0; i < (e->edge ? 500 : 1500); i++)
        CU(cuMemcpyDtoDAsync(e->y + 2 * i, e->x + 2 * i, 2, e->b));
    overwrite(e->y, BYTES, e->b);
}

/* The host may look at its own memory at any time. */
static void to_the_host(struct edge_env *e)
{
    void *host;

    CU(cuMemHostAlloc(&host, BYTES, 0));
    fill(e, e->a);
    if (e->edge)
        follow(e, e->a, e->b);
    settle(e, e->a);
    CU(cuMemcpyAsync((CUdeviceptr)(uintptr_t)host, e->x, BYTES, e->b));
    overwrite((CUdeviceptr)(uintptr_t)host, BYTES, e->b);
}

/* Memory that goes away under a copy is no matter of bytes. */
static void source_freed(struct edge_env *e)
{
    CU(cuMemAllocAsync(&e->x, BYTES, e->a));
    follow(e, e->a, e->b);
    look(e, e->b);
    overwrite(e->y, BYTES, e->b);
    if (e->edge)
        follow(e, e->b, e->a);
    settle(e, e->b);
    CU(cuMemFreeAsync(e->x, e->a));
}

/* ---- two processes: the peer copies from the owner's memory too early, and the owner makes it good ---- */

static CUdeviceptr import(const CUipcMemHandle *h)
{
    CUdeviceptr p;

    CU(cuIpcOpenMemHandle(&p, *h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return p;
}

/* Returns the peer's y. */
static CUdeviceptr exchange_owner(struct edge_env *e)
{
    CU(cuIpcGetMemHandle(&e->mail->memory, e->x));
    post(e, 1);
    await(e, 2);
    return import(&e->mail->other);
}

static void exchange_peer(struct edge_env *e)
{
    await(e, 1);
    e->x = import(&e->mail->memory);
    CU(cuIpcGetMemHandle(&e->mail->other, e->y));
    post(e, 2);
}

/* Overwrites what the peer has copied, once its stream says that it has, and says so. */
static void make_good(struct edge_env *e, CUdeviceptr theirs, bool waits, bool writes)
{
    if (waits)
        CU(cuStreamWaitValue32(e->a, e->flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    if (writes)
        CU(cuMemcpyAsync(theirs, e->x, BYTES, e->a));
    CU(cuStreamWriteValue32(e->a, e->flag, 2, 0));
    await(e, 5);
    CU(cuIpcCloseMemHandle(theirs));
}

static void copy_early(struct edge_env *e)
{
    look(e, e->b);
    CU(cuStreamWriteValue32(e->b, e->flag, 1, 0));
    settle(e, e->b);
    post(e, 4);
}

static void use(struct edge_env *e)
{
    CU(cuStreamWaitValue32(e->b, e->flag, 2, CU_STREAM_WAIT_VALUE_GEQ));
    download(e->y, BYTES, e->b);
    CU(cuStreamSynchronize(e->b));
    CU(cuIpcCloseMemHandle(e->x));
    post(e, 5);
}

static void write_then_copy_owner(struct edge_env *e)
{
    CUdeviceptr theirs = exchange_owner(e);

    fill(e, e->a);
    settle(e, e->a);
    post(e, 3);
    make_good(e, theirs, true, e->edge);
}

static void write_then_copy_peer(struct edge_env *e)
{
    exchange_peer(e);
    await(e, 3);
    copy_early(e);
    use(e);
}

static void copy_then_write_owner(struct edge_env *e)
{
    CUdeviceptr theirs = exchange_owner(e);

    await(e, 4);
    fill(e, e->a);
    make_good(e, theirs, true, e->edge);
}

static void copy_then_write_peer(struct edge_env *e)
{
    exchange_peer(e);
    copy_early(e);
    use(e);
}

/* Without the peer's word, the right bytes may come before the copy's. */
static void good_too_soon_owner(struct edge_env *e)
{
    CUdeviceptr theirs = exchange_owner(e);

    fill(e, e->a);
    settle(e, e->a);
    post(e, 3);
    await(e, 4);
    make_good(e, theirs, e->edge, true);
}

/* Freeing waits for the peer's work. The owner's write has been queued before, and the word that
 * lets it go is no edge. */
static void late_freed_by_host_owner(struct edge_env *e)
{
    CUdeviceptr theirs = exchange_owner(e);

    CU(cuIpcCloseMemHandle(theirs));
    CU(cuStreamWaitValue32(e->a, e->flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    fill(e, e->a);
    post(e, 3);
    settle(e, e->a);
    post(e, 4);
}

static void late_freed_by_host_peer(struct edge_env *e)
{
    exchange_peer(e);
    look(e, e->b);
    if (!e->edge)
        download(e->y, BYTES, e->b);
    await(e, 3);
    CU(cuMemFree(e->y));
    CU(cuStreamWriteValue32(e->a, e->flag, 1, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
    await(e, 4);
    CU(cuIpcCloseMemHandle(e->x));
}

#define READ_BY "what the copy read is used: read by "

const struct edge_case edges_unused[] = {
    {.name = "overwritten", .body = overwritten, .second = READ_BY "cuMemcpyDtoHAsync"},
    {.name = "stays", .body = stays},
    {.name = "copied-on", .body = copied_on, .second = READ_BY "cuMemcpyAsync"},
    {.name = "overwritten-in-parts", .body = overwritten_in_parts, .second = READ_BY "cuMemcpyDtoHAsync"},
    {.name = "half-a-race", .body = half_a_race, .second = READ_BY "cuMemcpyDtoHAsync"},
    {.name = "overwritten-unordered", .body = overwritten_unordered, .first = "cuMemsetD32Async"},
    {.name = "freed", .body = freed},
    {.name = "late-overwritten", .body = late_overwritten},
    {.name = "late-stays", .body = late_stays},
    {.name = "late-gap", .body = late_gap},
    {.name = "late-freed", .body = late_freed},
    {.name = "behind-a-read", .body = behind_a_read, .second = "cuMemcpyDtoHAsync"},
    {.name = "among-many", .body = among_many},
    {.name = "behind-many", .body = behind_many},
    {.name = "many-stay", .body = many_stay},
    {.name = "many-race", .body = many_race},
    {.name = "to-the-host", .body = to_the_host, .second = "cuMemcpyAsync"},
    {.name = "source-freed", .body = source_freed, .first = "cuMemFreeAsync"},
    {.name = "late-freed-by-host", .body = late_freed_by_host_owner, .peer = late_freed_by_host_peer},
    {.name = "write-then-copy",
     .body = write_then_copy_owner,
     .peer = write_then_copy_peer,
     .second = READ_BY "cuMemcpyDtoHAsync"},
    {.name = "copy-then-write",
     .body = copy_then_write_owner,
     .peer = copy_then_write_peer,
     .second = READ_BY "cuMemcpyDtoHAsync"},
    {.name = "good-too-soon", .body = good_too_soon_owner, .peer = write_then_copy_peer, .first = "cuMemcpyAsync"},
    {.name = NULL},
};
