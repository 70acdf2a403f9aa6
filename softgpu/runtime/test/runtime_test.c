/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in runtime on the stand-in driver: what programs rely on. Also right on real CUDA. */
#include <criterion/criterion.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(call) cr_assert_eq((call), cudaSuccess, "%s: %s", #call, cudaGetErrorName(cudaPeekAtLastError()))
#define FAILS(call, error) cr_assert_eq((call), (error), "%s did not return %s", #call, #error)

enum { BYTES = 1 << 20 };

Test(softgpu_runtime, errors_have_names_and_texts)
{
    cr_assert_str_eq(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
    cr_assert_str_eq(cudaGetErrorName((cudaError_t)12345), "unrecognized error code");
    cr_assert_gt(strlen(cudaGetErrorString(cudaErrorMemoryAllocation)), 0);
}

Test(softgpu_runtime, last_error_is_kept_until_read)
{
    void *pointer;
    OK(cudaFree(NULL));
    FAILS(cudaSetDevice(-1), cudaErrorInvalidDevice);
    OK(cudaMalloc(&pointer, BYTES));
    cr_assert_eq(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    cr_assert_eq(cudaGetLastError(), cudaErrorInvalidDevice);
    cr_assert_eq(cudaGetLastError(), cudaSuccess);
    OK(cudaFree(pointer));
}

Test(softgpu_runtime, properties_agree_with_attributes)
{
    struct cudaDeviceProp prop;
    int count, major, sms, version;
    OK(cudaGetDeviceCount(&count));
    OK(cudaGetDeviceProperties(&prop, 0));
    OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    cr_assert_gt(strlen(prop.name), 0);
    cr_assert_eq(prop.major, major);
    cr_assert_eq(prop.multiProcessorCount, sms);
    cr_assert_gt(prop.totalGlobalMem, 0);
    FAILS(cudaGetDeviceProperties(&prop, count), cudaErrorInvalidDevice);
    OK(cudaRuntimeGetVersion(&version));
    cr_assert_eq(version / 1000, 13);
    OK(cudaDriverGetVersion(&version));
    cr_assert_geq(version, 13000);
}

static void *device_of_new_thread(void *device)
{
    return cudaGetDevice(device) == cudaSuccess ? device : NULL;
}

Test(softgpu_runtime, current_device_is_per_thread)
{
    pthread_t thread;
    int count, mine, other = -1;
    void *ok;
    OK(cudaGetDeviceCount(&count));
    cr_assert_geq(count, 2, "run with at least two devices");
    OK(cudaSetDevice(1));
    pthread_create(&thread, NULL, device_of_new_thread, &other);
    pthread_join(thread, &ok);
    OK(cudaGetDevice(&mine));
    cr_assert_eq(mine, 1);
    cr_assert_not_null(ok);
    cr_assert_eq(other, 0);
    FAILS(cudaSetDevice(count), cudaErrorInvalidDevice);
    OK(cudaGetDevice(&mine));
    cr_assert_eq(mine, 1, "a failed cudaSetDevice changes nothing");
}

Test(softgpu_runtime, copies_of_every_kind)
{
    unsigned char *host = malloc(BYTES), *back = malloc(BYTES);
    void *a, *b;
    for (int i = 0; i < BYTES; i++)
        host[i] = (unsigned char)(i * 7);
    OK(cudaMalloc(&a, BYTES));
    OK(cudaMalloc(&b, BYTES));
    OK(cudaMemcpy(a, host, BYTES, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(b, a, BYTES, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(back, b, BYTES, cudaMemcpyDeviceToHost));
    cr_assert_eq(memcmp(host, back, BYTES), 0);
    OK(cudaMemset(b, 0x5a, BYTES));
    OK(cudaMemcpy(back, b, BYTES, cudaMemcpyDefault));
    cr_assert_eq(back[0], 0x5a);
    cr_assert_eq(back[BYTES - 1], 0x5a);
    FAILS(cudaMemcpy(back, b, BYTES, (enum cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    cudaGetLastError();
    OK(cudaFree(a));
    OK(cudaFree(b));
    free(host);
    free(back);
}

Test(softgpu_runtime, copy_of_a_rectangle)
{
    unsigned char host[4 * 8], back[4 * 8];
    void *device;
    size_t pitch;
    for (int i = 0; i < 32; i++)
        host[i] = (unsigned char)i;
    memset(back, 0xee, sizeof(back));
    OK(cudaMallocPitch(&device, &pitch, 5, 4));
    cr_assert_geq(pitch, 5);
    OK(cudaMemcpy2D(device, pitch, host, 8, 5, 4, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2D(back, 8, device, pitch, 5, 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++)
        cr_assert_eq(back[i], i % 8 < 5 ? i : 0xee);
    FAILS(cudaMemcpy2D(back, 4, device, pitch, 5, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidPitchValue);
    OK(cudaFree(device));
}

Test(softgpu_runtime, nothing_is_a_valid_size)
{
    void *pointer = &pointer;
    OK(cudaMalloc(&pointer, 0));
    cr_assert_null(pointer);
    OK(cudaFree(NULL));
    OK(cudaMemcpy(NULL, NULL, 0, cudaMemcpyDeviceToDevice));
    FAILS(cudaMalloc(NULL, 1), cudaErrorInvalidValue);
}

static atomic_int gate, order;

static void CUDART_CB wait_for_gate(void *unused)
{
    (void)unused;
    while (!atomic_load(&gate))
        usleep(1000);
    atomic_store(&order, 1);
}

static void CUDART_CB check_order(cudaStream_t stream, cudaError_t status, void *seen)
{
    (void)stream;
    *(int *)seen = status == cudaSuccess && atomic_load(&order) == 1;
}

/* Calls must return while the stream is held, and what follows in the stream must wait. */
Test(softgpu_runtime, streams_are_asynchronous_and_ordered, .timeout = 20)
{
    cudaStream_t stream;
    cudaEvent_t begin, end;
    float milliseconds = -1;
    int seen = 0;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    OK(cudaEventRecord(begin, stream));
    OK(cudaLaunchHostFunc(stream, wait_for_gate, NULL));
    OK(cudaStreamAddCallback(stream, check_order, &seen, 0));
    OK(cudaEventRecord(end, stream));
    FAILS(cudaEventQuery(end), cudaErrorNotReady);
    FAILS(cudaStreamQuery(stream), cudaErrorNotReady);
    cudaGetLastError();
    atomic_store(&gate, 1);
    OK(cudaStreamSynchronize(stream));
    cr_assert_eq(seen, 1);
    OK(cudaEventQuery(end));
    OK(cudaEventElapsedTime(&milliseconds, begin, end));
    cr_assert_geq(milliseconds, 0);
    OK(cudaEventDestroy(begin));
    OK(cudaEventDestroy(end));
    OK(cudaStreamDestroy(stream));
}

Test(softgpu_runtime, pointers_know_their_kind)
{
    struct cudaPointerAttributes attributes;
    void *device, *pinned, *plain = malloc(64);
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&device, BYTES));
    OK(cudaMallocHost(&pinned, BYTES));
    OK(cudaPointerGetAttributes(&attributes, (char *)device + 100));
    cr_assert_eq(attributes.type, cudaMemoryTypeDevice);
    cr_assert_eq(attributes.device, 1);
    OK(cudaPointerGetAttributes(&attributes, pinned));
    cr_assert_eq(attributes.type, cudaMemoryTypeHost);
    cr_assert_eq(attributes.hostPointer, pinned);
    OK(cudaPointerGetAttributes(&attributes, plain));
    cr_assert_eq(attributes.type, cudaMemoryTypeUnregistered);
    OK(cudaFreeHost(pinned));
    OK(cudaFree(device));
    free(plain);
}

/* cuda_runtime_api.h declares the twins only under another compile option. */
__typeof__(cudaMemsetAsync) cudaMemsetAsync_ptsz;
__typeof__(cudaStreamSynchronize) cudaStreamSynchronize_ptsz;

Test(softgpu_runtime, per_thread_twins_use_the_per_thread_stream, .timeout = 20)
{
    cudaStream_t held;
    unsigned char byte = 0;
    void *device;
    OK(cudaMalloc(&device, BYTES));
    OK(cudaStreamCreateWithFlags(&held, cudaStreamDefault));
    OK(cudaLaunchHostFunc(held, wait_for_gate, NULL));
    /* The legacy stream would wait for `held`; the per-thread stream does not. */
    OK(cudaMemsetAsync_ptsz(device, 0x33, BYTES, 0));
    OK(cudaStreamSynchronize_ptsz(0));
    atomic_store(&gate, 1);
    OK(cudaStreamSynchronize(held));
    OK(cudaMemcpy(&byte, (char *)device + BYTES - 1, 1, cudaMemcpyDeviceToHost));
    cr_assert_eq(byte, 0x33);
    OK(cudaFree(device));
}

Test(softgpu_runtime, stream_ordered_allocation)
{
    cudaStream_t stream;
    unsigned char byte = 0;
    void *pointer;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMallocAsync(&pointer, BYTES, stream));
    OK(cudaMemsetAsync(pointer, 0x77, BYTES, stream));
    OK(cudaMemcpyAsync(&byte, pointer, 1, cudaMemcpyDeviceToHost, stream));
    OK(cudaFreeAsync(pointer, stream));
    OK(cudaStreamSynchronize(stream));
    cr_assert_eq(byte, 0x77);
    OK(cudaStreamDestroy(stream));
}

Test(softgpu_runtime, peers_are_enabled_once)
{
    unsigned char byte = 0;
    void *here, *there;
    int can = 0;
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    cr_assert_eq(can, 1);
    OK(cudaDeviceEnablePeerAccess(1, 0));
    FAILS(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    cudaGetLastError();
    OK(cudaMalloc(&here, BYTES));
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&there, BYTES));
    OK(cudaMemset(there, 0x42, BYTES));
    OK(cudaDeviceSynchronize());
    OK(cudaSetDevice(0));
    OK(cudaMemcpyPeer(here, 0, there, 1, BYTES));
    OK(cudaMemcpy(&byte, here, 1, cudaMemcpyDeviceToHost));
    cr_assert_eq(byte, 0x42);
    OK(cudaDeviceDisablePeerAccess(1));
}

Test(softgpu_runtime, host_memory_is_registered_once)
{
    void *host = aligned_alloc(4096, BYTES), *device;
    struct cudaPointerAttributes attributes;
    OK(cudaHostRegister(host, BYTES, cudaHostRegisterMapped));
    FAILS(cudaHostRegister(host, BYTES, cudaHostRegisterMapped), cudaErrorHostMemoryAlreadyRegistered);
    cudaGetLastError();
    OK(cudaHostGetDevicePointer(&device, host, 0));
    OK(cudaPointerGetAttributes(&attributes, host));
    cr_assert_eq(attributes.type, cudaMemoryTypeHost);
    OK(cudaHostUnregister(host));
    free(host);
}

Test(softgpu_runtime, graphs_are_captured_and_launched)
{
    enum cudaStreamCaptureStatus status;
    cudaGraphExec_t exec;
    cudaGraph_t graph;
    cudaStream_t stream;
    unsigned char byte = 0;
    size_t nodes = 0;
    void *pointer;
    OK(cudaMalloc(&pointer, BYTES));
    OK(cudaMemset(pointer, 1, BYTES));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemsetAsync(pointer, 9, BYTES, stream));
    OK(cudaStreamIsCapturing(stream, &status));
    cr_assert_eq(status, cudaStreamCaptureStatusActive);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, NULL, &nodes));
    cr_assert_eq(nodes, 1);
    OK(cudaMemcpy(&byte, pointer, 1, cudaMemcpyDeviceToHost));
    cr_assert_eq(byte, 1, "captured, not run");
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(&byte, pointer, 1, cudaMemcpyDeviceToHost));
    cr_assert_eq(byte, 9);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
}

Test(softgpu_runtime, driver_entry_points)
{
    enum cudaDriverEntryPointQueryResult status;
    void *function = NULL, *driver = dlopen("libcuda.so.1", RTLD_NOW);
    OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 12000, cudaEnableDefault, &status));
    cr_assert_eq(status, cudaDriverEntryPointSuccess);
    cr_assert_eq(function, dlsym(driver, "cuMemAlloc_v2"));
    OK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 12000, cudaEnableDefault, &status));
    cr_assert_eq(status, cudaDriverEntryPointSymbolNotFound);
    cr_assert_null(function);
}

Test(softgpu_runtime, kernels_are_refused)
{
    const dim3 one = {1, 1, 1};
    OK(cudaFree(NULL));
    FAILS(cudaLaunchKernel(&gate, one, one, NULL, 0, 0), cudaErrorNoKernelImageForDevice);
}

Test(softgpu_runtime, reset_forgets_and_starts_again)
{
    void *pointer;
    OK(cudaMalloc(&pointer, BYTES));
    OK(cudaDeviceReset());
    OK(cudaMalloc(&pointer, BYTES));
    OK(cudaMemset(pointer, 1, BYTES));
    OK(cudaDeviceSynchronize());
    OK(cudaFree(pointer));
}
