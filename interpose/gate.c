#include "interpose/gate.h"

#include <errno.h>
#include "base/real.h"
#include "interpose/resolve.h"
#include "plugin/pending.h"

/* Arguments are counted in machine words; a location travels in one. */
_Static_assert(sizeof(CUmemLocation) == sizeof(uint64_t), "index of the stream in cuMemPrefetchAsync_v2");

enum { WHY_OP = SLR_R_JOIN_OTHER_OP, WHY_HOST = SLR_R_JOIN_HOST_SYNC };

struct gate_row {
    const char *name;
    uint8_t class;
    uint8_t arg;
    uint8_t why;
};

static const struct gate_row rows[SLR_GATE_COUNT] = {
#define X(sym, cls, arg, why) {#sym, SLR_GATE_##cls, arg, WHY_##why},
#include "interpose/gate.def"
#undef X
};

void *slr_gate_real[SLR_GATE_COUNT];

int slr_gate_missing(void)
{
    return CUDA_ERROR_NOT_FOUND;
}

static int no_driver(void)
{
    return CUDA_ERROR_NOT_INITIALIZED;
}

static uint64_t argument(const struct slr_gate_frame *frame, unsigned i)
{
    return i < SLR_GATE_REGS ? frame->reg[i] : frame->stack[i - SLR_GATE_REGS];
}

static void join(const struct gate_row *row, const struct slr_gate_frame *frame)
{
    uint64_t arg = argument(frame, row->arg);
    const CUlaunchConfig *config = (const CUlaunchConfig *)(uintptr_t)arg;
    CUstream stream = (CUstream)(uintptr_t)arg;
    bool per_thread = row->class == SLR_GATE_STREAM_PTSZ || row->class == SLR_GATE_LAUNCH_CONFIG_PTSZ;

    switch ((enum slr_gate_class)row->class) {
    case SLR_GATE_LAUNCH_CONFIG:
    case SLR_GATE_LAUNCH_CONFIG_PTSZ:
        if (!config) /* the driver refuses it: nothing is launched */
            return;
        stream = config->hStream;
        /* fallthrough */
    case SLR_GATE_STREAM:
    case SLR_GATE_STREAM_PTSZ:
        slr_pending_join_stream(stream, per_thread, row->why, row->name);
        return;
    case SLR_GATE_LEGACY:
    case SLR_GATE_ALL:
        slr_pending_join_all(row->why, row->name);
        return;
    case SLR_GATE_NONE:
        return;
    }
}

void *slr_gate_slow(unsigned index, const struct slr_gate_frame *frame)
{
    int saved = errno;
    unsigned word = atomic_load_explicit(&slr_gate_word, memory_order_acquire);
    if (!slr_find_cuda()) {
        errno = saved;
        return (void *)no_driver;
    }
    if ((word & ~SLR_GATE_UNRESOLVED) != 0 && slr_guard == 0) {
        slr_guard++;
        join(&rows[index], frame);
        slr_guard--;
    }
    errno = saved;
    return slr_gate_real[index];
}
