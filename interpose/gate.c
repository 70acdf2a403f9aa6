/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/gate.h"

#include <errno.h>
#include <stddef.h>
#include "base/real.h"
#include "interpose/resolve.h"
#include "plugin/comm/stream.h"
#include "plugin/pending/pending.h"
#include "plugin/produce/produce.h"

/* Arguments are counted in machine words; a location travels in one. */
_Static_assert(sizeof(CUmemLocation) == sizeof(uint64_t), "index of the stream in cuMemPrefetchAsync_v2");

static int no_driver(void)
{
    return CUDA_ERROR_NOT_INITIALIZED;
}

static uint64_t argument(const struct slr_gate_frame *frame, unsigned i)
{
    return i < SLR_GATE_REGS ? frame->reg[i] : frame->stack[i - SLR_GATE_REGS];
}

/* What a call that has been done in the driver's stead answers: the stub jumps to the function. */
static _Thread_local CUresult answer __attribute__((tls_model("initial-exec")));

static CUresult answered(void)
{
    return answer;
}

/* The newest attribute of a launch that is known not to record an event:
 * CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING, which CUDA 12's header does not have. */
#define LAST_ATTRIBUTE 16

/* Whether the launch records an event of the application beside its stream, or may, by an attribute
 * that is newer than this file. */
static bool launch_records(const CUlaunchConfig *config)
{
    for (unsigned i = 0; config->attrs && i < config->numAttrs; i++) {
        CUlaunchAttributeID id = config->attrs[i].id;
        if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT || id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT ||
            (int)id > LAST_ATTRIBUTE)
            return true;
    }
    return false;
}

/* Of a structure's side. */
static CUdeviceptr end_of(CUmemorytype type, CUdeviceptr device)
{
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ? device : 0;
}

#define ENDS(type, at, end)                                                                                            \
    do {                                                                                                               \
        const type *copy = (const void *)(uintptr_t)(at);                                                              \
        (end)[0] = copy ? end_of(copy->dstMemoryType, copy->dstDevice) : 0;                                            \
        (end)[1] = copy ? end_of(copy->srcMemoryType, copy->srcDevice) : 0;                                            \
    } while (0)

/* Of a blocking copy. */
static void find_ends(const struct slr_gate_row *row, const struct slr_gate_frame *frame, CUdeviceptr end[2])
{
    const uint64_t first = argument(frame, 0);
    switch (row->class) {
    case SLR_GATE_COPY_2D:
        ENDS(CUDA_MEMCPY2D, first, end);
        break;
    case SLR_GATE_COPY_3D:
        ENDS(CUDA_MEMCPY3D, first, end);
        break;
    case SLR_GATE_COPY_3D_PEER:
        ENDS(CUDA_MEMCPY3D_PEER, first, end);
        break;
    default:
        end[0] = first;
        end[1] = argument(frame, row->arg);
    }
}

/* The classes as gate.def explains them. */
static struct slr_observed decode(const struct slr_gate_row *row, const struct slr_gate_frame *frame)
{
    const uint64_t first = argument(frame, 0), arg = argument(frame, row->arg);
    struct slr_observed o = {.why = row->why, .who = row->name};
    const CUlaunchConfig *config = (const CUlaunchConfig *)(uintptr_t)arg;
    CUstream stream = (CUstream)(uintptr_t)arg;

    switch (row->class) {
    case SLR_GATE_RECORD_FLAGS:
        o.flags = (unsigned)argument(frame, 2);
        /* fall through */
    case SLR_GATE_RECORD:
        o.act = SLR_ACT_RECORD;
        o.event = (CUevent)(uintptr_t)first;
        break;
    case SLR_GATE_WAIT:
        o.act = SLR_ACT_WAIT;
        o.event = (CUevent)(uintptr_t)argument(frame, 1);
        o.flags = (unsigned)argument(frame, 2);
        break;
    case SLR_GATE_EVENT_END:
        o.act = SLR_ACT_EVENT_END;
        o.event = (CUevent)(uintptr_t)arg;
        break;
    case SLR_GATE_ALLOC:
        o.act = SLR_ACT_ALLOC;
        break;
    case SLR_GATE_FREE:
        o.act = SLR_ACT_FREE;
        o.memory = (CUdeviceptr)first;
        break;
    case SLR_GATE_QUERY:
        o.act = SLR_ACT_QUERY;
        break;
    case SLR_GATE_CAPTURE_INFO:
        o.act = argument(frame, 4) ? SLR_ACT_NEXT : SLR_ACT_NONE;
        break;
    case SLR_GATE_LAUNCH_CONFIG:
        if (!config) /* the driver refuses it: nothing is launched */
            break;
        o.act = SLR_ACT_OPERATION;
        o.unseen = launch_records(config);
        stream = config->hStream;
        break;
    case SLR_GATE_STREAM_COPY:
        o.end[0] = first;
        o.end[1] = argument(frame, 1);
        o.bytes = argument(frame, 2);
        /* fall through */
    case SLR_GATE_STREAM:
    case SLR_GATE_GRAPH:
        o.act = SLR_ACT_OPERATION;
        o.unseen = row->class == SLR_GATE_GRAPH;
        break;
    case SLR_GATE_LEGACY:
        o.act = SLR_ACT_OPERATION;
        stream = NULL;
        break;
    case SLR_GATE_COPY:
    case SLR_GATE_COPY_2D:
    case SLR_GATE_COPY_3D:
    case SLR_GATE_COPY_3D_PEER:
        find_ends(row, frame, o.end);
        o.act = SLR_ACT_HOST;
        break;
    case SLR_GATE_CONTEXT:
        o.ctx = (CUcontext)(uintptr_t)arg;
        o.act = SLR_ACT_HOST;
        break;
    case SLR_GATE_GREEN:
        o.green = (CUgreenCtx)(uintptr_t)arg;
        o.act = SLR_ACT_HOST;
        break;
    case SLR_GATE_ALL:
        o.act = SLR_ACT_HOST;
        break;
    case SLR_GATE_NONE:
        break;
    }
    o.stream = slr_stream_name(stream, row->per_thread);
    return o;
}

/* What slipring or a vendor's function that it called does joins nothing; but it can record an event that
 * carries. */
static bool changes_events(const struct slr_gate_row *row, const struct slr_gate_frame *frame)
{
    switch (row->class) {
    case SLR_GATE_RECORD:
    case SLR_GATE_RECORD_FLAGS:
    case SLR_GATE_EVENT_END:
    case SLR_GATE_GRAPH:
        return true;
    case SLR_GATE_LAUNCH_CONFIG:
        return decode(row, frame).unseen;
    default:
        return false;
    }
}

static bool launches_in_front(unsigned index, const struct slr_gate_frame *frame)
{
    const struct slr_launch l = {.config = (const void *)(uintptr_t)argument(frame, 0),
                                 .function = (CUfunction)(uintptr_t)argument(frame, 1),
                                 .params = (void **)(uintptr_t)argument(frame, 2),
                                 .extra = (void **)(uintptr_t)argument(frame, 3)};
    slr_guard++;
    const bool done = slr_front_launch((slr_launch_fn *)(uintptr_t)slr_gate_real[index], &l, &answer);
    slr_guard--;
    return done;
}

void *slr_gate_slow(unsigned index, const struct slr_gate_frame *frame)
{
    int saved = errno;
    unsigned word = atomic_load_explicit(&slr_gate_word, memory_order_acquire);
    bool done = false;
    /* The first call of all: this fills the table and opens the gate. */
    if (!slr_find_cuda()) {
        errno = saved;
        return (void *)no_driver;
    }
    if ((word & ~SLR_GATE_UNRESOLVED) != 0) {
        const struct slr_gate_row *row =
            index < SLR_GATE_COUNT ? &slr_gate_rows[index] : &slr_gate_spare_rows[index - SLR_GATE_COUNT];
        /* What joining calls of the vendors may come back through the stubs. */
        if (slr_guard == slr_guard_program) {
            const struct slr_observed o = decode(row, frame);
            slr_guard++;
            slr_product_observe(&o);
            done = slr_pending_observe(&o, &answer);
            if (o.act == SLR_ACT_OPERATION && o.why == SLR_R_JOIN_OTHER_OP) /* and not the host */
                slr_front_operation(o.stream);
            done = done || slr_produce_copy(&o, slr_pending_joins(), &answer);
            slr_guard--;
        } else if (changes_events(row, frame)) {
            slr_pending_events_unseen();
        }
        done = done || (row->class == SLR_GATE_LAUNCH_CONFIG && launches_in_front(index, frame));
    }
    errno = saved;
    return done ? (void *)answered : slr_gate_real[index];
}
