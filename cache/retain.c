/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/retain.h"

#include <pthread.h>
#include "base/clock.h"
#include "base/cu.h"
#include "cache/block_state.h"

#define TRIES 10 /* a millisecond apart */

/* The program's calls are its readers, a look is its writer. */
static pthread_rwlock_t books = PTHREAD_RWLOCK_INITIALIZER;

static bool begin(void)
{
    /* Not a plain wait: the program may be inside cuMemUnmap, which may wait for its device. */
    for (int i = 0; i < TRIES; i++) {
        if (pthread_rwlock_trywrlock(&books) == 0)
            return true;
        slr_sleep_ms(1);
    }
    return false;
}

enum slr_retain_result slr_retain(CUdeviceptr p, CUmemGenericAllocationHandle *memory)
{
    if (!begin())
        return SLR_RETAIN_LATER;
    if (slr_real.cuMemRetainAllocationHandle(memory, (void *)(uintptr_t)p) == CUDA_SUCCESS)
        return SLR_RETAINED;
    pthread_rwlock_unlock(&books);
    return SLR_RETAIN_REFUSED;
}

void slr_retain_end(CUmemGenericAllocationHandle memory)
{
    slr_cu_status(slr_real.cuMemRelease(memory), "cuMemRelease");
    pthread_rwlock_unlock(&books);
}

/* A child after fork may have the lock of a thread that is not there. */
void slr_retain_program_begin(void)
{
    if (slr_block_usable())
        pthread_rwlock_rdlock(&books);
}

void slr_retain_program_end(void)
{
    if (slr_block_usable())
        pthread_rwlock_unlock(&books);
}
