/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/gate.h"

#include <errno.h>
#include <stddef.h>
#include "base/real.h"
#include "cache/captures.h"
#include "interpose/gate_copy.h"
#include "interpose/gate_table.h"
#include "interpose/resolve.h"
#include "plugin/comm/stream.h"
#include "plugin/pending/pending.h"
#include "plugin/produce/product.h"

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

static bool of_thread(enum slr_gate_class class)
{
    return class == SLR_GATE_STREAM_PTSZ || class == SLR_GATE_LAUNCH_CONFIG_PTSZ || class == SLR_GATE_RECORD_PTSZ ||
           class == SLR_GATE_RECORD_FLAGS_PTSZ || class == SLR_GATE_WAIT_PTSZ || class == SLR_GATE_GRAPH_PTSZ ||
           class == SLR_GATE_ALLOC_PTSZ || class == SLR_GATE_FREE_PTSZ || class == SLR_GATE_CAPTURE_INFO_PTSZ ||
           class == SLR_GATE_QUERY_PTSZ || class == SLR_GATE_LEGACY_PTDS;
}

/* The newest attribute of a launch that is known not to record an event:
 * CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING, which CUDA 12's header does not have. */
#define LAST_ATTRIBUTE 16

/* Whether the launch records an event of the application beside its stream, or may, by an attribute
 * that is newer than this file. */
static bool launch_records(const CUlaunchConfig *config)
{
    for (unsigned i = 0; config && config->attrs && i < config->numAttrs; i++) {
        CUlaunchAttributeID id = config->attrs[i].id;
        if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT || id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT ||
            (int)id > LAST_ATTRIBUTE)
            return true;
    }
    return false;
}

/* What the call may do to a GEMM's output that a reduce-scatter is to send (plugin/produce/product.h). */
static void touch(const struct slr_gate_row *row, const struct slr_gate_frame *frame)
{
    const uint64_t arg = argument(frame, row->arg);
    const CUstream stream = (CUstream)(uintptr_t)arg;
    const CUevent event = (CUevent)(uintptr_t)argument(frame, 0);
    const bool per_thread = of_thread(row->class);
    const CUlaunchConfig *config = (const CUlaunchConfig *)(uintptr_t)arg;

    switch (row->class) {
    case SLR_GATE_RECORD:
    case SLR_GATE_RECORD_PTSZ:
        slr_product_record(event, stream, per_thread, slr_pending_event_is_shared(event));
        break;
    case SLR_GATE_RECORD_FLAGS:
    case SLR_GATE_RECORD_FLAGS_PTSZ:
        slr_product_record(event, stream, per_thread,
                           (unsigned)argument(frame, 2) | slr_pending_event_is_shared(event));
        break;
    case SLR_GATE_WAIT:
    case SLR_GATE_WAIT_PTSZ:
        slr_product_wait(stream, (CUevent)(uintptr_t)argument(frame, 1), per_thread, (unsigned)argument(frame, 2));
        break;
    case SLR_GATE_EVENT_END:
        slr_product_event_end((CUevent)(uintptr_t)arg);
        break;
    case SLR_GATE_ALLOC:
    case SLR_GATE_ALLOC_PTSZ:
    case SLR_GATE_FREE:
    case SLR_GATE_FREE_PTSZ:
    case SLR_GATE_CAPTURE_INFO:
    case SLR_GATE_CAPTURE_INFO_PTSZ:
    case SLR_GATE_NONE:
        break;
    case SLR_GATE_LAUNCH_CONFIG:
    case SLR_GATE_LAUNCH_CONFIG_PTSZ:
        if (config)
            slr_product_on_stream(config->hStream, per_thread);
        break;
    case SLR_GATE_STREAM:
    case SLR_GATE_STREAM_PTSZ:
    case SLR_GATE_QUERY:
    case SLR_GATE_QUERY_PTSZ:
    case SLR_GATE_GRAPH:
    case SLR_GATE_GRAPH_PTSZ:
        slr_product_on_stream(stream, per_thread);
        break;
    case SLR_GATE_LEGACY:
    case SLR_GATE_LEGACY_PTDS:
        slr_product_on_stream(NULL, per_thread);
        break;
    case SLR_GATE_ALL:
    case SLR_GATE_COPY:
    case SLR_GATE_COPY_2D:
    case SLR_GATE_COPY_3D:
    case SLR_GATE_COPY_3D_PEER:
        slr_product_on_all();
        break;
    }
}

/* A blocking copy: of the current context, and of the devices that it goes between. */
static void join_copy(const struct slr_gate_row *row, const struct slr_gate_frame *frame)
{
    CUdevice device[2];
    slr_pending_join_all(row->why, row->name);
    if (!slr_pending_any() || !slr_gate_copy_devices(row, frame, device))
        return;
    for (int i = 0; i < 2; i++)
        slr_pending_join_device(device[i], row->why, row->name);
}

/* Returns true when there is nothing left for the driver to do. */
static bool join(const struct slr_gate_row *row, const struct slr_gate_frame *frame)
{
    enum slr_gate_class class = row->class;
    uint64_t arg = argument(frame, row->arg);
    const CUlaunchConfig *config = (const CUlaunchConfig *)(uintptr_t)arg;
    CUstream stream = (CUstream)(uintptr_t)arg;
    bool per_thread = of_thread(class), flags = class == SLR_GATE_RECORD_FLAGS || class == SLR_GATE_RECORD_FLAGS_PTSZ;

    switch (class) {
    case SLR_GATE_RECORD:
    case SLR_GATE_RECORD_PTSZ:
    case SLR_GATE_RECORD_FLAGS:
    case SLR_GATE_RECORD_FLAGS_PTSZ:
        return slr_pending_record((CUevent)(uintptr_t)argument(frame, 0), stream, per_thread,
                                  flags ? (unsigned)argument(frame, 2) : 0, row->name, &answer);
    case SLR_GATE_WAIT:
    case SLR_GATE_WAIT_PTSZ:
        return slr_pending_wait(stream, (CUevent)(uintptr_t)argument(frame, 1), per_thread,
                                (unsigned)argument(frame, 2), row->name, &answer);
    case SLR_GATE_EVENT_END:
        slr_pending_event_end((CUevent)(uintptr_t)arg);
        return false;
    case SLR_GATE_LAUNCH_CONFIG:
    case SLR_GATE_LAUNCH_CONFIG_PTSZ:
        if (!config) /* the driver refuses it: nothing is launched */
            return false;
        if (launch_records(config))
            slr_pending_events_unseen();
        stream = config->hStream;
        break;
    case SLR_GATE_GRAPH:
    case SLR_GATE_GRAPH_PTSZ:
        slr_pending_events_unseen();
        break;
    case SLR_GATE_ALLOC:
    case SLR_GATE_ALLOC_PTSZ:
        slr_pending_alloc(stream, per_thread);
        return false;
    case SLR_GATE_FREE:
    case SLR_GATE_FREE_PTSZ:
        slr_pending_free((CUdeviceptr)argument(frame, 0), stream, per_thread, row->name);
        return false;
    case SLR_GATE_QUERY:
    case SLR_GATE_QUERY_PTSZ:
        return slr_pending_query(stream, per_thread, row->name, &answer);
    case SLR_GATE_CAPTURE_INFO:
    case SLR_GATE_CAPTURE_INFO_PTSZ:
        if (!argument(frame, 4) || slr_nothing_captures())
            return false;
        break;
    case SLR_GATE_LEGACY:
    case SLR_GATE_LEGACY_PTDS:
        stream = NULL;
        break;
    case SLR_GATE_ALL:
        slr_pending_join_all(row->why, row->name);
        return false;
    case SLR_GATE_COPY:
    case SLR_GATE_COPY_2D:
    case SLR_GATE_COPY_3D:
    case SLR_GATE_COPY_3D_PEER:
        join_copy(row, frame);
        return false;
    case SLR_GATE_NONE:
        return false;
    case SLR_GATE_STREAM:
    case SLR_GATE_STREAM_PTSZ:
        break;
    }
    slr_pending_join_stream(stream, per_thread, row->why, row->name);
    return false;
}

/* What slipring or a vendor's function that it called does joins nothing; but it can record an
 * event that carries. */
static void note_own(const struct slr_gate_row *row, const struct slr_gate_frame *frame)
{
    enum slr_gate_class class = row->class;
    bool records = class >= SLR_GATE_RECORD && class <= SLR_GATE_GRAPH_PTSZ && class != SLR_GATE_WAIT &&
                   class != SLR_GATE_WAIT_PTSZ;
    if (class == SLR_GATE_LAUNCH_CONFIG || class == SLR_GATE_LAUNCH_CONFIG_PTSZ)
        records = launch_records((const CUlaunchConfig *)(uintptr_t)argument(frame, row->arg));
    if (records)
        slr_pending_events_unseen();
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
            slr_guard++;
            if (slr_product_any())
                touch(row, frame);
            done = join(row, frame);
            slr_guard--;
        } else {
            note_own(row, frame);
        }
    }
    errno = saved;
    return done ? (void *)answered : slr_gate_real[index];
}
