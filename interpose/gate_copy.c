/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/gate_copy.h"

#include "base/real.h"

/* Of a structure's side. */
static CUdeviceptr end_of(CUmemorytype type, CUdeviceptr device)
{
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ? device : 0;
}

#define ENDS(type, at, end)                                                                                            \
    do {                                                                                                               \
        const type *copy = (at);                                                                                       \
        (end)[0] = copy ? end_of(copy->dstMemoryType, copy->dstDevice) : 0;                                            \
        (end)[1] = copy ? end_of(copy->srcMemoryType, copy->srcDevice) : 0;                                            \
    } while (0)

static void find_ends(const struct slr_gate_row *row, const struct slr_gate_frame *frame, CUdeviceptr end[2])
{
    const void *at = (const void *)(uintptr_t)frame->reg[0];
    switch (row->class) {
    case SLR_GATE_COPY_2D:
        ENDS(CUDA_MEMCPY2D, at, end);
        break;
    case SLR_GATE_COPY_3D:
        ENDS(CUDA_MEMCPY3D, at, end);
        break;
    case SLR_GATE_COPY_3D_PEER:
        ENDS(CUDA_MEMCPY3D_PEER, at, end);
        break;
    default:
        end[0] = frame->reg[0];
        end[1] = frame->reg[row->arg];
        break;
    }
}

bool slr_gate_copy_devices(const struct slr_gate_row *row, const struct slr_gate_frame *frame, CUdevice device[2])
{
    CUdeviceptr end[2];
    find_ends(row, frame, end);
    for (int i = 0; i < 2; i++) {
        int ordinal = -1;
        if (!end[i] ||
            slr_real.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, end[i]) != CUDA_SUCCESS)
            return false;
        device[i] = ordinal;
    }
    return device[0] != device[1];
}
