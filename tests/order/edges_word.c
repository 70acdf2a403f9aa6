/* SPDX-License-Identifier: Apache-2.0 */
/* Order by words that streams write and wait for. */
#include "edges.h"
#include <stddef.h>

#define GEQ CU_STREAM_WAIT_VALUE_GEQ
#define EQ CU_STREAM_WAIT_VALUE_EQ

static void host_word(struct edge_env *e)
{
    fill(e, e->a);
    CU(cuStreamWriteValue32(e->a, e->flag, 1, 0));
    settle(e, e->a);
    if (e->edge)
        CU(cuStreamWaitValue32(e->b, e->flag, 1, GEQ));
    look(e, e->b);
}

static void device_word(struct edge_env *e)
{
    CUdeviceptr word;

    CU(cuMemAlloc(&word, 8));
    CU(cuMemsetD8(word, 0, 8));
    CU(cuCtxSynchronize());
    if (e->edge)
        CU(cuStreamWaitValue64(e->b, word, 7, EQ));
    look(e, e->b);
    fill(e, e->a);
    CU(cuStreamWriteValue64(e->a, word, 7, 0));
    settle(e, e->a);
}

/* What was written before the word counts, not what happened to have run when it was seen. */
static void too_early_a_value(struct edge_env *e)
{
    CU(cuStreamWriteValue32(e->a, e->flag, 1, 0));
    fill(e, e->a);
    CU(cuStreamWriteValue32(e->a, e->flag, 2, 0));
    settle(e, e->a);
    CU(cuStreamWaitValue32(e->b, e->flag, e->edge ? 2 : 1, GEQ));
    look(e, e->b);
}

static void no_barrier(struct edge_env *e)
{
    fill(e, e->a);
    CU(cuStreamWriteValue32(e->a, e->flag, 1, e->edge ? 0 : CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
    CU(cuStreamWaitValue32(e->b, e->flag, 1, GEQ));
    look(e, e->b);
}

/* The same word again and again, with the writer's own resets: an old value is no edge for a new round. */
static void used_again(struct edge_env *e)
{
    for (int round = 0; round < 3; round++) {
        fill(e, e->a);
        CU(cuStreamWriteValue32(e->a, e->flag, 1, 0));
        if (e->edge || round < 2)
            CU(cuStreamWaitValue32(e->b, e->flag, 1, EQ));
        look(e, e->b);
        CU(cuStreamWriteValue32(e->b, e->flag, 0, 0));
        if (round < 2) /* without its edge the last round's reset may come first */
            CU(cuStreamWaitValue32(e->a, e->flag, 0, EQ));
        settle(e, e->b);
    }
}

/* The host resets the word between the rounds, which nobody sees. */
static void host_resets(struct edge_env *e)
{
    for (int round = 0; round < 3; round++) {
        fill(e, e->a);
        CU(cuStreamWriteValue32(e->a, e->flag, 1, 0));
        if (e->edge || round < 2)
            CU(cuStreamWaitValue32(e->b, e->flag, 1, GEQ));
        look(e, e->b);
        CU(cuCtxSynchronize());
        __atomic_store_n(&e->mail->flag, 0, __ATOMIC_SEQ_CST);
    }
}

/* A host that has waited for the one stream lets the other go; the value is one that a stream has written before. */
static void host_releases(struct edge_env *e)
{
    uint32_t *word;

    CU(cuMemHostAlloc((void **)&word, 4, 0));
    *word = 0;
    CU(cuStreamWriteValue32(e->a, (CUdeviceptr)(uintptr_t)word, 1, 0));
    CU(cuStreamWriteValue32(e->a, (CUdeviceptr)(uintptr_t)word, 0, 0));
    settle(e, e->a);
    fill(e, e->a);
    if (e->edge)
        CU(cuStreamWaitValue32(e->b, (CUdeviceptr)(uintptr_t)word, 1, GEQ));
    look(e, e->b);
    CU(cuStreamSynchronize(e->a));
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
}

/* A word that processes share, raised to end a wait after a failure: what the stream does then is nobody's data. */
static void forced(struct edge_env *e)
{
    CU(cuStreamWriteValue32(e->a, e->flag, 1, 0));
    settle(e, e->a);
    if (e->edge)
        CU(cuStreamWaitValue32(e->b, e->flag, 2, GEQ));
    __atomic_store_n(&e->mail->flag, 1000, __ATOMIC_SEQ_CST);
    look(e, e->b);
    settle(e, e->b);
    fill(e, e->a);
}

/* Copies and fills of one word may write what a stream waits for: what stands before them is seen, and not more. */
static void word_by_copy(struct edge_env *e)
{
    CUdeviceptr one;

    CU(cuMemAlloc(&one, 4));
    CU(cuMemsetD32(one, 1, 1));
    CU(cuCtxSynchronize());
    if (e->edge)
        fill(e, e->a);
    CU(cuMemcpyAsync(e->flag, one, 4, e->a));
    if (!e->edge)
        fill(e, e->a);
    settle(e, e->a);
    CU(cuStreamWaitValue32(e->b, e->flag, 1, GEQ));
    look(e, e->b);
}

static void word_by_fill(struct edge_env *e)
{
    if (e->edge)
        fill(e, e->a);
    CU(cuMemsetD32Async(e->flag, 5, 1, e->a));
    if (!e->edge)
        fill(e, e->a);
    settle(e, e->a);
    CU(cuStreamWaitValue32(e->b, e->flag, 5, EQ));
    look(e, e->b);
}

/* Words that wrap compare cyclically. */
static void wraps(struct edge_env *e)
{
    __atomic_store_n(&e->mail->flag, UINT32_MAX - 3, __ATOMIC_SEQ_CST);
    for (uint32_t v = UINT32_MAX - 2; v != 3; v++) {
        fill(e, e->a);
        CU(cuStreamWriteValue32(e->a, e->flag, v, 0));
        if (e->edge || v != 2)
            CU(cuStreamWaitValue32(e->b, e->flag, v, GEQ));
        look(e, e->b);
        follow(e, e->b, e->a);
    }
}

const struct edge_case edges_word[] = {
    {.name = "host-word", .body = host_word},
    {.name = "device-word", .body = device_word},
    {.name = "too-early-a-value", .body = too_early_a_value},
    {.name = "no-barrier", .body = no_barrier},
    {.name = "used-again", .body = used_again},
    {.name = "host-resets", .body = host_resets},
    {.name = "host-releases", .body = host_releases},
    {.name = "forced", .body = forced},
    {.name = "word-by-copy", .body = word_by_copy},
    {.name = "word-by-fill", .body = word_by_fill},
    {.name = "wraps", .body = wraps},
    {.name = NULL},
};
