/* SPDX-License-Identifier: Apache-2.0 */
/* How long a flag takes from one process's stream to another's: cuStreamWriteValue32 on one side, cuStreamWaitValue32
 * on the other, with the flags in host memory that both register, or in device memory that they exchange by CUDA IPC.
 *
 * Two processes play ping-pong: all rounds are enqueued first, behind a gate that the host opens, so the time between
 * the two events is the device's alone. One round is two flags. Prints medians over batches, in microseconds per flag,
 * and what one call costs the host. Plain driver calls, found with dlopen: it builds without a toolkit's libraries.
 *
 * usage: memop_latency [ROUNDS [BATCHES [DEVICE0 DEVICE1]]]
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_BATCHES 1000
#define TIMEOUT_US 20e6
#define WORD_STRIDE 128 /* bytes between flags: no two share a cache line */
#define DEVICE_BYTES (2u << 20)

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit)                                                                                                          \
    X(cuDeviceGet)                                                                                                     \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuMemHostRegister)                                                                                               \
    X(cuMemHostUnregister)                                                                                             \
    X(cuMemHostGetDevicePointer)                                                                                       \
    X(cuMemAlloc)                                                                                                      \
    X(cuMemFree)                                                                                                       \
    X(cuMemsetD8)                                                                                                      \
    X(cuIpcGetMemHandle)                                                                                               \
    X(cuIpcOpenMemHandle)                                                                                              \
    X(cuIpcCloseMemHandle)                                                                                             \
    X(cuStreamCreate)                                                                                                  \
    X(cuStreamQuery)                                                                                                   \
    X(cuStreamSynchronize)                                                                                             \
    X(cuStreamWaitValue32)                                                                                             \
    X(cuStreamWriteValue32)                                                                                            \
    X(cuEventCreate)                                                                                                   \
    X(cuEventRecord)                                                                                                   \
    X(cuEventElapsedTime)

#include "driver.h"

/* What the two processes share; made before the fork. */
struct shared {
    _Alignas(4096) unsigned char page[4096]; /* registered: gate words, then inbox words */
    _Alignas(4096) _Atomic int arrived;
    _Atomic int failed;
    CUipcMemHandle handle[2];
};

struct side {
    int rank;
    struct shared *shared;
    CUstream stream;
    CUevent start, stop;
    CUdeviceptr page;      /* shared->page as this device sees it */
    CUdeviceptr own, peer; /* device memory: own block and the other process's */
    uint32_t gate_count;   /* value that the next batch's gate waits for */
    int barriers;          /* passed so far */
};

struct place {
    const char *name;
    CUdeviceptr inbox, peer_inbox;
    uint32_t count; /* last value sent */
};

/* Ends this process; the other one sees `failed` and ends too. */
static void give_up(struct side *s, const char *what, int code)
{
    fprintf(stderr, "memop_latency: rank %d: %s failed (%d)\n", s->rank, what, code);
    atomic_store(&s->shared->failed, 1);
    _exit(1);
}

#define TRY(s, call)                                                                                                   \
    do {                                                                                                               \
        CUresult result_ = cu.call;                                                                                    \
        if (result_ != CUDA_SUCCESS)                                                                                   \
            give_up(s, #call, (int)result_);                                                                           \
    } while (0)

static void pause_or_give_up(struct side *s, double deadline, const char *what)
{
    if (atomic_load(&s->shared->failed))
        _exit(1);
    if (now_us() > deadline)
        give_up(s, what, ETIMEDOUT);
    usleep(20);
}

static void barrier(struct side *s)
{
    double deadline = now_us() + TIMEOUT_US;
    int target = 2 * ++s->barriers;

    atomic_fetch_add(&s->shared->arrived, 1);
    while (atomic_load(&s->shared->arrived) < target)
        pause_or_give_up(s, deadline, "barrier");
}

static void drain(struct side *s)
{
    double deadline = now_us() + TIMEOUT_US;
    CUresult result;

    while ((result = cu.cuStreamQuery(s->stream)) == CUDA_ERROR_NOT_READY)
        pause_or_give_up(s, deadline, "stream");
    if (result != CUDA_SUCCESS)
        give_up(s, "cuStreamQuery", (int)result);
}

static void open_device(struct side *s, int ordinal)
{
    CUdevice device;
    CUcontext context;

    load_driver();
    TRY(s, cuInit(0));
    TRY(s, cuDeviceGet(&device, ordinal));
    TRY(s, cuDevicePrimaryCtxRetain(&context, device));
    TRY(s, cuCtxSetCurrent(context));
    TRY(s, cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING));
    TRY(s, cuEventCreate(&s->start, CU_EVENT_DEFAULT));
    TRY(s, cuEventCreate(&s->stop, CU_EVENT_DEFAULT));
    TRY(s, cuMemHostRegister(s->shared->page, sizeof(s->shared->page),
                             CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE));
    TRY(s, cuMemHostGetDevicePointer(&s->page, s->shared->page, 0));
}

static void exchange_device_memory(struct side *s)
{
    TRY(s, cuMemAlloc(&s->own, DEVICE_BYTES));
    TRY(s, cuMemsetD8(s->own, 0, DEVICE_BYTES));
    TRY(s, cuStreamSynchronize(CU_STREAM_LEGACY)); /* the memset may return before it is done */
    TRY(s, cuIpcGetMemHandle(&s->shared->handle[s->rank], s->own));
    barrier(s);
    TRY(s, cuIpcOpenMemHandle(&s->peer, s->shared->handle[!s->rank], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    barrier(s);
}

static void close_device_memory(struct side *s)
{
    TRY(s, cuIpcCloseMemHandle(s->peer));
    barrier(s); /* an exported block may be freed only when nobody has it open */
    TRY(s, cuMemFree(s->own));
    TRY(s, cuMemHostUnregister(s->shared->page));
}

static void enqueue_round(struct side *s, struct place *p)
{
    uint32_t value = ++p->count;

    if (s->rank == 0)
        TRY(s, cuStreamWriteValue32(s->stream, p->peer_inbox, value, CU_STREAM_WRITE_VALUE_DEFAULT));
    TRY(s, cuStreamWaitValue32(s->stream, p->inbox, value, CU_STREAM_WAIT_VALUE_GEQ));
    if (s->rank == 1)
        TRY(s, cuStreamWriteValue32(s->stream, p->peer_inbox, value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

/* Microseconds per flag; *call_us: what one enqueued operation cost this host thread. */
static double batch(struct side *s, struct place *p, int rounds, double *call_us)
{
    _Atomic uint32_t *gate = (_Atomic uint32_t *)(void *)(s->shared->page + s->rank * WORD_STRIDE);
    float ms = 0;

    s->gate_count++;
    TRY(s, cuStreamWaitValue32(s->stream, s->page + (CUdeviceptr)(s->rank * WORD_STRIDE), s->gate_count,
                               CU_STREAM_WAIT_VALUE_GEQ));
    TRY(s, cuEventRecord(s->start, s->stream));
    double begin = now_us();
    for (int i = 0; i < rounds; i++)
        enqueue_round(s, p);
    *call_us = (now_us() - begin) / (2.0 * rounds);
    TRY(s, cuEventRecord(s->stop, s->stream));
    barrier(s);
    atomic_store(gate, s->gate_count);
    drain(s);
    TRY(s, cuEventElapsedTime(&ms, s->start, s->stop));
    return (double)ms * 1e3 / (2.0 * rounds);
}

static void measure(struct side *s, struct place *p, int rounds, int batches)
{
    static double us[MAX_BATCHES], call_us[MAX_BATCHES];
    double ignored;

    batch(s, p, rounds, &ignored);
    for (int i = 0; i < batches; i++)
        us[i] = batch(s, p, rounds, &call_us[i]);
    if (s->rank != 0)
        return;
    qsort(us, (size_t)batches, sizeof(us[0]), ascending);
    qsort(call_us, (size_t)batches, sizeof(call_us[0]), ascending);
    printf(
        "memop flags=%s us_per_flag_median=%.2f min=%.2f max=%.2f host_us_per_call_median=%.2f rounds=%d batches=%d\n",
        p->name, us[batches / 2], us[0], us[batches - 1], call_us[batches / 2], rounds, batches);
    fflush(stdout);
}

static void run_rank(struct side *s, int ordinal, int rounds, int batches)
{
    open_device(s, ordinal);
    exchange_device_memory(s);

    CUdeviceptr inboxes = s->page + 2 * WORD_STRIDE; /* behind the two gates */
    struct place host = {"host", inboxes + (CUdeviceptr)(s->rank * WORD_STRIDE),
                         inboxes + (CUdeviceptr)(!s->rank * WORD_STRIDE), 0};
    struct place device = {"device", s->own, s->peer, 0};

    measure(s, &host, rounds, batches);
    measure(s, &device, rounds, batches);
    close_device_memory(s);
}

static int number(int argc, char **argv, int i, int def, int low, int high)
{
    char *end;

    if (i >= argc)
        return def;
    long value = strtol(argv[i], &end, 10);
    if (*argv[i] == '\0' || *end != '\0' || value < low || value > high) {
        fprintf(stderr, "memop_latency: argument %d is a number from %d to %d, not '%s'\n", i, low, high, argv[i]);
        exit(2);
    }
    return (int)value;
}

int main(int argc, char **argv)
{
    int rounds = number(argc, argv, 1, 64, 1, 100000), batches = number(argc, argv, 2, 50, 1, MAX_BATCHES);
    int ordinal[2] = {number(argc, argv, 3, 0, 0, 255), number(argc, argv, 4, 0, 0, 255)};
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct side side = {.rank = 0, .shared = shared};
    int status = 0;

    if (shared == MAP_FAILED) {
        perror("memop_latency: mmap");
        return 1;
    }
    pid_t child = fork(); /* before CUDA is initialised: a context does not survive a fork */
    if (child < 0) {
        perror("memop_latency: fork");
        return 1;
    }
    side.rank = child == 0;
    run_rank(&side, ordinal[side.rank], rounds, batches);
    if (child == 0)
        _exit(0);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}
