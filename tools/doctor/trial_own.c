/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a trial that need only the own device: context, control memory, stream memory
 * operations, a block. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tools/doctor/trial.h"

#define BLOCK ((size_t)2 << 20) /* what drivers hand out in one piece */

bool trial_bad(struct trial_self *s, enum trial_part part, const char *what, const char *why)
{
    if (s->r->state[part] != TRIAL_BAD)
        snprintf(s->r->why[part], sizeof s->r->why[part], "%s: %s", what, why);
    s->r->state[part] = TRIAL_BAD;
    return false;
}

bool trial_went(struct trial_self *s, enum trial_part part, const char *function, CUresult r)
{
    *s->r->step = '\0';
    return r == CUDA_SUCCESS || trial_bad(s, part, function, doctor_cuda_error(r));
}

void trial_step(struct trial_self *s, const char *function)
{
    snprintf(s->r->step, sizeof s->r->step, "%s", function);
}

void trial_pattern(int rank, unsigned char bytes[TRIAL_BYTES])
{
    for (unsigned i = 0; i < TRIAL_BYTES; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256 + 31 * (unsigned)rank + 5);
}

bool trial_enter(struct trial_self *s, enum trial_part part)
{
    CUdevice dev = 0;
    char missing[256];
    trial_step(s, "dlopen");
    if (!s->drv.handle && !doctor_driver_load(&s->drv, missing, sizeof missing))
        return trial_bad(s, part, "libcuda.so.1", "could not be loaded again");
    return TRIAL_TRY(s, part, s->drv, cuInit, 0) && TRIAL_TRY(s, part, slr_real, cuDeviceGet, &dev, s->r->device) &&
           TRIAL_TRY(s, part, slr_real, cuDevicePrimaryCtxRetain, &s->ctx, dev) &&
           TRIAL_TRY(s, part, slr_real, cuCtxPushCurrent, s->ctx);
}

int trial_memory(void)
{
    int fd = memfd_create("slipring-doctor", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, sysconf(_SC_PAGESIZE)) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

bool trial_control(struct trial_self *s, enum trial_part part, int fd, void **words, CUdeviceptr *device_words)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *words = fd < 0 ? MAP_FAILED : mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*words == MAP_FAILED)
        return trial_bad(s, part, "memfd_create, mmap", "no shared memory");
    return TRIAL_TRY(s, part, slr_real, cuMemHostRegister, *words, page,
                     CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) &&
           TRIAL_TRY(s, part, slr_real, cuMemHostGetDevicePointer, device_words, *words, 0);
}

static bool memops(struct trial_self *s, _Atomic uint32_t *word, CUdeviceptr device_word)
{
    CUstream stream = NULL;
    CUstreamBatchMemOpParams write = {0};
    write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write.writeValue.address = device_word;
    write.writeValue.value = 1;
    if (!TRIAL_TRY(s, TRIAL_MEMOPS, slr_real, cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, 0) ||
        !TRIAL_TRY(s, TRIAL_MEMOPS, slr_real, cuStreamBatchMemOp, stream, 1, &write, 0) ||
        !TRIAL_TRY(s, TRIAL_MEMOPS, slr_real, cuStreamSynchronize, stream))
        return false;
    if (atomic_load(word) != 1)
        return trial_bad(s, TRIAL_MEMOPS, "cuStreamBatchMemOp", "the word was not written");
    return TRIAL_TRY(s, TRIAL_MEMOPS, slr_real, cuStreamWaitValue32, stream, device_word, 1,
                     CU_STREAM_WAIT_VALUE_GEQ) &&
           TRIAL_TRY(s, TRIAL_MEMOPS, slr_real, cuStreamSynchronize, stream);
}

bool trial_write(struct trial_self *s, enum trial_part part, CUdeviceptr to)
{
    unsigned char bytes[TRIAL_BYTES];
    trial_pattern(s->number, bytes);
    return TRIAL_TRY(s, part, s->drv, cuMemcpyHtoD, to, bytes, sizeof bytes) &&
           TRIAL_TRY(s, part, slr_real, cuStreamSynchronize, NULL);
}

static bool make_block(struct trial_self *s)
{
    return TRIAL_TRY(s, TRIAL_IPC, slr_real, cuMemAlloc, &s->block, BLOCK) &&
           TRIAL_TRY(s, TRIAL_IPC, slr_real, cuMemAlloc, &s->copy, BLOCK) && trial_write(s, TRIAL_IPC, s->block) &&
           TRIAL_TRY(s, TRIAL_IPC, slr_real, cuIpcGetMemHandle, &s->r->handle, s->block);
}

static void good(struct trial_self *s, enum trial_part part)
{
    s->r->state[part] = TRIAL_GOOD;
}

void trial_own(struct trial_self *s)
{
    void *words = NULL;
    CUdeviceptr device_words = 0;
    if (!trial_enter(s, TRIAL_CONTEXT))
        return;
    good(s, TRIAL_CONTEXT);
    int fd = trial_memory();
    if (trial_control(s, TRIAL_CONTROL, fd, &words, &device_words)) {
        good(s, TRIAL_CONTROL);
        if (memops(s, words, device_words)) {
            good(s, TRIAL_MEMOPS);
            if (trial_graphs(s, words, device_words))
                good(s, TRIAL_GRAPHS);
        }
    }
    if (fd >= 0)
        close(fd);
    s->r->offers = make_block(s);
}
