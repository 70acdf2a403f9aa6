/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/graph_try.h"

#include <time.h>
#include "base/wait.h"

/* The headers turn some names into newer ones: those that are looked up. */
#define TEXT_(fn) #fn
#define TEXT(fn) TEXT_(fn)

const char *slr_graph_try_missing(void)
{
    const struct {
        const char *name;
        bool there;
    } needed[] = {
#define F(fn) {TEXT(fn), slr_real.fn != NULL}
        F(cuGraphExecBatchMemOpNodeSetParams),
        F(cuGraphExecMemcpyNodeSetParams),
        F(cuGraphNodeSetEnabled),
        F(cuGraphNodeFindInClone),
        F(cuGraphChildGraphNodeGetGraph),
        F(cuStreamGetCaptureInfo),
        F(cuGraphCreate),
        F(cuGraphAddBatchMemOpNode),
        F(cuGraphAddMemcpyNode),
        F(cuGraphInstantiate),
        F(cuGraphLaunch),
        F(cuGraphExecDestroy),
        F(cuGraphDestroy),
#undef F
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!needed[i].there)
            return needed[i].name;
    return NULL;
}

/* ---- the words and the memory ---- */

enum { WORD, SOURCE_1, SOURCE_2, BEFORE, SEEN_WORD, SEEN_OFF, SEEN_ON }; /* words */
enum { FROM_1, FROM_2, TO };                                             /* memory, by 8 bytes */
enum { MADE = 4, FIRST, SECOND };                                        /* values of WORD */

_Static_assert(SEEN_ON < SLR_GRAPH_TRY_WORDS && TO * 8 < SLR_GRAPH_TRY_BYTES, "there is room");

static CUdeviceptr word(const struct slr_graph_try *t, int i)
{
    return t->dword + 8 * (CUdeviceptr)i;
}

static CUdeviceptr memory_at(const struct slr_graph_try *t, int i)
{
    return t->memory + 8 * (CUdeviceptr)i;
}

static uint64_t pattern_of(int i)
{
    return 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
}

CUdeviceptr slr_graph_try_from(const struct slr_graph_try *t)
{
    return memory_at(t, FROM_1);
}

CUdeviceptr slr_graph_try_to(const struct slr_graph_try *t)
{
    return memory_at(t, TO);
}

/* ---- nodes ---- */

static void set_ops(const struct slr_graph_try *t, uint64_t value, CUstreamBatchMemOpParams op[2])
{
    op[0] = op[1] = (CUstreamBatchMemOpParams){0};
    op[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    op[0].writeValue.address = word(t, WORD);
    op[0].writeValue.value64 = value;
    op[0].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    op[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    op[1].waitValue.address = word(t, WORD);
    op[1].waitValue.value64 = value;
    op[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
}

void slr_graph_try_ops(const struct slr_graph_try *t, CUstreamBatchMemOpParams op[2])
{
    set_ops(t, MADE, op);
}

/* As the driver describes a captured copy (ring_recorded.c). */
static CUDA_MEMCPY3D copy_from(const struct slr_graph_try *t, int from)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = memory_at(t, from),
                           .dstDevice = memory_at(t, TO),
                           .WidthInBytes = 8,
                           .Height = 1,
                           .Depth = 1};
}

static bool failed(struct slr_graph_try *t, const char *step, const char *why)
{
    t->step = step;
    t->why = why;
    return false;
}

static bool went(struct slr_graph_try *t, CUresult r, const char *step)
{
    const char *name = NULL;
    if (r == CUDA_SUCCESS)
        return true;
    return failed(t, step, slr_real.cuGetErrorName(r, &name) == CUDA_SUCCESS && name ? name : "error");
}

#define WENT(t, fn, ...) went((t), slr_real.fn(__VA_ARGS__), #fn)

bool slr_graph_try_make(struct slr_graph_try *t)
{
    CUstreamBatchMemOpParams op[2];
    const CUDA_BATCH_MEM_OP_NODE_PARAMS words = {.ctx = t->ctx, .count = 2, .paramArray = op};
    const CUDA_MEMCPY3D copy = copy_from(t, FROM_1);
    const char *missing = slr_graph_try_missing();
    slr_graph_try_ops(t, op);
    return (!missing || failed(t, missing, "missing")) && WENT(t, cuGraphCreate, &t->graph, 0) &&
           WENT(t, cuGraphAddBatchMemOpNode, &t->words, t->graph, NULL, 0, &words) &&
           WENT(t, cuGraphAddMemcpyNode, &t->copy, t->graph, &t->words, 1, &copy, t->ctx);
}

/* ---- launches ---- */

static bool move(struct slr_graph_try *t, CUdeviceptr to, CUdeviceptr from)
{
    return WENT(t, cuMemcpyAsync, to, from, 8, t->stream);
}

static bool fill_memory(struct slr_graph_try *t)
{
    atomic_store(&t->word[WORD], 0);
    for (int i = SOURCE_1; i < SLR_GRAPH_TRY_WORDS; i++)
        atomic_store(&t->word[i], i <= BEFORE ? pattern_of(i) : 0);
    return move(t, memory_at(t, FROM_1), word(t, SOURCE_1)) && move(t, memory_at(t, FROM_2), word(t, SOURCE_2)) &&
           move(t, memory_at(t, TO), word(t, BEFORE));
}

static bool change(struct slr_graph_try *t, CUgraphExec exec, uint64_t value, int from, bool on)
{
    CUstreamBatchMemOpParams op[2];
    const CUDA_BATCH_MEM_OP_NODE_PARAMS words = {.ctx = t->ctx, .count = 2, .paramArray = op};
    const CUDA_MEMCPY3D copy = copy_from(t, from);
    set_ops(t, value, op);
    return WENT(t, cuGraphExecBatchMemOpNodeSetParams, exec, t->words, &words) &&
           WENT(t, cuGraphExecMemcpyNodeSetParams, exec, t->copy, &copy, t->ctx) &&
           WENT(t, cuGraphNodeSetEnabled, exec, t->copy, on);
}

/* The stream's work, for a second at most. */
static bool wait_idle(struct slr_graph_try *t)
{
    const uint64_t end = slr_now_ms() + SLR_GRAPH_TRY_MS;
    CUresult r;
    while ((r = slr_real.cuStreamQuery(t->stream)) == CUDA_ERROR_NOT_READY) {
        if (slr_now_ms() >= end)
            return failed(t, "cuGraphLaunch", "timeout");
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return went(t, r, "cuGraphLaunch");
}

static bool compare(struct slr_graph_try *t)
{
    if (atomic_load(&t->word[SEEN_WORD]) != FIRST || atomic_load(&t->word[WORD]) != SECOND)
        return failed(t, "cuGraphExecBatchMemOpNodeSetParams", "differs");
    if (atomic_load(&t->word[SEEN_OFF]) != pattern_of(BEFORE))
        return failed(t, "cuGraphNodeSetEnabled", "differs");
    if (atomic_load(&t->word[SEEN_ON]) != pattern_of(SOURCE_2))
        return failed(t, "cuGraphExecMemcpyNodeSetParams", "differs");
    return true;
}

bool slr_graph_try_use(struct slr_graph_try *t)
{
    CUgraphExec exec = NULL;
    if (!WENT(t, cuGraphInstantiate, &exec, t->graph, 0))
        return false;
    const bool good = fill_memory(t) && change(t, exec, FIRST, FROM_1, false) &&
                      WENT(t, cuGraphLaunch, exec, t->stream) && move(t, word(t, SEEN_WORD), word(t, WORD)) &&
                      move(t, word(t, SEEN_OFF), memory_at(t, TO)) && change(t, exec, SECOND, FROM_2, true) &&
                      WENT(t, cuGraphLaunch, exec, t->stream) && move(t, word(t, SEEN_ON), memory_at(t, TO)) &&
                      wait_idle(t) && compare(t);
    slr_real.cuGraphExecDestroy(exec);
    return good;
}

void slr_graph_try_end(struct slr_graph_try *t)
{
    if (t->graph)
        slr_real.cuGraphDestroy(t->graph);
    t->graph = NULL;
}
