/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA runtime, shared or linked into the program, reaches the driver through the gate: each call below is noticed
 * and joins what it can see. Run under the recording library on the software GPU. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "check.h"
#include "fake/recorder.h"

static slr_test_joins_t joins;

enum joined { NOTHING, STREAM, PER_THREAD, ALL };

/* Checks what the calls since the last check have joined, in the end. */
static void expect(const char *what, enum joined how, cudaStream_t stream)
{
    struct recorded_join *j = joins();
    CHECK_FOR(what, (j->calls > 0) == (how != NOTHING));
    if (how != NOTHING)
        CHECK_FOR(j->seen.who, (j->seen.act == SLR_ACT_HOST) == (how == ALL));
    if (how == STREAM || how == PER_THREAD)
        CHECK_FOR(j->seen.who, j->seen.stream == (how == STREAM ? stream : CU_STREAM_PER_THREAD));
    memset(j, 0, sizeof(*j));
}

#define RUN(call, how, stream)                                                                                         \
    do {                                                                                                               \
        CHECK_FOR(#call, (call) == cudaSuccess);                                                                       \
        expect(#call, how, stream);                                                                                    \
    } while (0)

int main(void)
{
    slr_test_pending_t set_pending = (slr_test_pending_t)dlsym(RTLD_DEFAULT, "slr_test_pending");
    joins = (slr_test_joins_t)dlsym(RTLD_DEFAULT, "slr_test_joins");
    CHECK(set_pending && joins);

    cudaStream_t s;
    cudaEvent_t e;
    void *a, *b;
    char host[64] = {0};
    CHECK(cudaStreamCreate(&s) == cudaSuccess);
    CHECK(cudaEventCreate(&e) == cudaSuccess);
    CHECK(cudaMalloc(&a, 4096) == cudaSuccess);

    set_pending(1);
    RUN(cudaMalloc(&b, 4096), NOTHING, NULL);
    RUN(cudaMemcpyAsync(a, b, 4096, cudaMemcpyDeviceToDevice, s), STREAM, s);
    RUN(cudaMemcpyAsync(a, b, 4096, cudaMemcpyDeviceToDevice, NULL), STREAM, NULL);
    RUN(cudaMemsetAsync(a, 0, 4096, s), STREAM, s);
    RUN(cudaMemcpy(host, a, sizeof(host), cudaMemcpyDeviceToHost), STREAM, NULL);
    RUN(cudaMemcpy(a, b, 4096, cudaMemcpyDeviceToDevice), ALL, NULL);
    RUN(cudaMemset(a, 0, 4096), STREAM, NULL);
    RUN(cudaEventRecord(e, s), STREAM, s);
    RUN(cudaEventSynchronize(e), NOTHING, NULL);
    RUN(cudaStreamWaitEvent(s, e, 0), STREAM, s);
    RUN(cudaStreamSynchronize(s), STREAM, s);
    RUN(cudaStreamQuery(s), STREAM, s);
    RUN(cudaDeviceSynchronize(), ALL, NULL);
    RUN(cudaFree(b), ALL, NULL);
    RUN(cudaStreamDestroy(s), STREAM, s);

    __typeof__(&cudaMemcpyAsync) per_thread = (__typeof__(&cudaMemcpyAsync))dlsym(RTLD_DEFAULT, "cudaMemcpyAsync_ptsz");
    if (per_thread)
        RUN(per_thread(host, a, sizeof(host), cudaMemcpyDeviceToHost, NULL), PER_THREAD, NULL);
    RUN(cudaDeviceSynchronize(), ALL, NULL);
    set_pending(0);
    RUN(cudaMemset(a, 1, 16), NOTHING, NULL);
    RUN(cudaFree(a), NOTHING, NULL);
    printf("cudaMemcpyAsync_ptsz: %s\n", per_thread ? "checked" : "not exported by this program");
    return 0;
}
