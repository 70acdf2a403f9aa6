/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver's calls cost, as far as it decides slipring's data path. The parts:
 *
 *   duplex   whether a GPU's copy engines read from a peer and write to it at once
 *   host     what a call costs the thread that makes it
 *   device   what a step of a stream takes the device; a hop is a step from one stream to another
 *   behind   when a copy within the device is done that comes behind a kernel which fills the device
 *
 * One process, a context for each of the first two devices. With one device, or without access between them, what
 * needs a peer is left out; so is what this driver does not have. Prints medians in microseconds. duplex and behind are
 * the host's time from the first call to the end of the synchronisation; device is the time between two events, of
 * steps that are all enqueued before the first one begins. Plain driver calls, found with dlopen: it builds without a
 * toolkit's libraries.
 *
 * usage: driver_costs [--quick] [--limit SECONDS] [PART...]      [60 s, every part; --quick: small sizes, few rounds]
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit)                                                                                                          \
    X(cuDriverGetVersion)                                                                                              \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetName)                                                                                                 \
    X(cuDeviceGetAttribute)                                                                                            \
    X(cuCtxSynchronize)                                                                                                \
    X(cuStreamSynchronize)                                                                                             \
    X(cuStreamWaitValue32)                                                                                             \
    X(cuEventCreate)                                                                                                   \
    X(cuEventRecord)                                                                                                   \
    X(cuEventElapsedTime)

#include "driver.h"
#include "driver_costs.h"

enum { SMALL = 64 << 10, LARGEST = 256 * MIB, LARGEST_QUICK = 4 * MIB };
enum {
    COPY_ROUNDS = 11,
    HOST_ROUNDS = 60,
    HOST_CALLS = 10,
    DEVICE_ROUNDS = 15,
    STEPS = 20,
    BEHIND_ROUNDS = 7,
    QUICK_ROUNDS = 3
};
/* Two blocks of 1024 threads are on a multiprocessor at a time, so the kernel is 20 waves of blocks. */
enum { BLOCKS_PER_PROCESSOR = 40, BLOCK_THREADS = 1024, BLOCK_CYCLES = 200000 };

static bool quick;
static unsigned have; /* of PEER, BATCH and KERNEL */
static CUevent start, stop;

static double median(double *us, int n)
{
    qsort(us, (size_t)n, sizeof *us, ascending);
    return us[n / 2];
}

static int rounds(int n)
{
    return quick ? QUICK_ROUNDS : n;
}

/* From the first call to the end of the synchronisation. */
static double whole_us(void (*enqueue)(void))
{
    double us[COPY_ROUNDS];
    int n = rounds(COPY_ROUNDS);
    for (int i = -1; i < n; i++) { /* the first one warms up */
        CHECK(cu.cuCtxSynchronize());
        double begin = now_us();
        enqueue();
        CHECK(cu.cuCtxSynchronize());
        if (i >= 0)
            us[i] = now_us() - begin;
    }
    return median(us, n);
}

/* One of HOST_CALLS calls, until it returns. */
static double host_us(void (*enqueue)(void))
{
    double us[HOST_ROUNDS];
    int n = rounds(HOST_ROUNDS);
    for (int i = -1; i < n; i++) {
        CHECK(cu.cuCtxSynchronize());
        double begin = now_us();
        for (int call = 0; call < HOST_CALLS; call++)
            enqueue();
        if (i >= 0)
            us[i] = (now_us() - begin) / HOST_CALLS;
    }
    CHECK(cu.cuCtxSynchronize());
    return median(us, n);
}

static void enqueue_steps(void (*enqueue)(void))
{
    for (int i = 0; i < STEPS; i += load.count)
        enqueue();
}

/* One of STEPS steps. They are enqueued behind a gate, so their time is the device's alone. */
static double step_us(void (*enqueue)(void))
{
    double us[DEVICE_ROUNDS];
    int n = rounds(DEVICE_ROUNDS);
    CUstream stream = gpu[0].high[0];
    enqueue(); /* without the gate: the driver may wait for the device to load what it has not loaded yet */
    CHECK(cu.cuCtxSynchronize());
    for (int i = 0; i < n; i++) {
        float ms = 0;
        atomic_store(gate, 0);
        CHECK(cu.cuStreamWaitValue32(stream, host_words, 1, CU_STREAM_WAIT_VALUE_GEQ));
        CHECK(cu.cuEventRecord(start, stream));
        enqueue_steps(enqueue);
        CHECK(cu.cuEventRecord(stop, stream));
        atomic_store(gate, 1);
        CHECK(cu.cuStreamSynchronize(stream));
        CHECK(cu.cuEventElapsedTime(&ms, start, stop));
        us[i] = (double)ms * 1e3 / STEPS;
    }
    return median(us, n);
}

static bool possible(unsigned needs)
{
    return (needs & ~have) == 0;
}

/* The time of a row; `bytes` in all its copies together. */
static double row_us(const struct row *row, size_t bytes, double (*us_of)(void (*enqueue)(void)))
{
    load = (struct load){bytes, row->count};
    return us_of(row->enqueue);
}

static void duplex(void)
{
    static const size_t mib[] = {4, 32, 256};
    int sizes = quick ? 1 : 3;
    printf("\n| both directions at once, us |");
    for (int i = 0; i < sizes; i++)
        printf(" %zu MiB |", mib[i]);
    printf("\n| --- |%s\n", quick ? " --- |" : " --- | --- | --- |");
    for (const struct row *row = duplex_rows.row; row < duplex_rows.row + duplex_rows.n; row++) {
        if (!possible(row->needs))
            continue;
        printf("| %s |", row->name);
        for (int i = 0; i < sizes; i++)
            printf(" %.1f |", row_us(row, mib[i] * MIB, whole_us));
        printf("\n");
    }
}

static void table(const char *title, const struct rows *rows, double (*us_of)(void (*enqueue)(void)))
{
    printf("\n| %s | us |\n| --- | --- |\n", title);
    for (const struct row *row = rows->row; row < rows->row + rows->n; row++)
        if (possible(row->needs))
            printf("| %s | %.2f |\n", row->name, row_us(row, SMALL * (size_t)row->count, us_of));
}

static void host(void)
{
    table("what a call costs the host", &host_rows, host_us);
}

static void device(void)
{
    table("what a step takes the device", &device_rows, step_us);
}

/* Enqueued with high priority while the device is full of the blocks of a kernel of low priority. */
static void behind_kernel(const struct row *row, size_t bytes, unsigned blocks)
{
    double done[BEHIND_ROUNDS], kernel[BEHIND_ROUNDS], alone = row_us(row, bytes, whole_us);
    int n = rounds(BEHIND_ROUNDS);
    for (int i = 0; i < n; i++) {
        CHECK(cu.cuCtxSynchronize());
        double begin = now_us();
        launch(gpu[0].low, blocks, BLOCK_THREADS, BLOCK_CYCLES);
        row->enqueue();
        CHECK(cu.cuStreamSynchronize(gpu[0].high[0]));
        done[i] = now_us() - begin;
        CHECK(cu.cuStreamSynchronize(gpu[0].low));
        kernel[i] = now_us() - begin;
    }
    printf("| %s | %zu | %.1f | %.0f | %.0f |\n", row->name, bytes / MIB, alone, median(done, n), median(kernel, n));
}

static unsigned filling_blocks(void)
{
    CUdevice first;
    int processors = 0;
    CHECK(cu.cuDeviceGet(&first, 0));
    CHECK(cu.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, first));
    return (unsigned)(processors * BLOCKS_PER_PROCESSOR);
}

static void behind(void)
{
    static const size_t mib[] = {4, 64};
    unsigned blocks = filling_blocks();
    printf("\n| behind a kernel, us | MiB | alone | done after | the kernel after |\n");
    printf("| --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < (quick ? 1 : 2); i++)
        for (const struct row *row = behind_rows.row; row < behind_rows.row + behind_rows.n; row++)
            if (possible(row->needs))
                behind_kernel(row, mib[i] * MIB, blocks);
}

static const struct part {
    const char *name;
    void (*print)(void);
    unsigned needs;
} parts[] = {{"duplex", duplex, PEER}, {"host", host, 0}, {"device", device, 0}, {"behind", behind, KERNEL}};
enum { PARTS = sizeof parts / sizeof *parts };

static void prepare(void)
{
    char name[128];
    int version = 0;
    CUdevice first;
    load_driver();
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGet(&first, 0));
    CHECK(cu.cuDeviceGetName(name, sizeof name, first));
    CHECK(cu.cuDriverGetVersion(&version));
    printf("%s, CUDA %d.%d; medians, microseconds\n", name, version / 1000, version % 1000 / 10);
    have = devices_open(quick ? LARGEST_QUICK : LARGEST);
    have |= rows_open();
    CHECK(cu.cuEventCreate(&start, CU_EVENT_DEFAULT));
    CHECK(cu.cuEventCreate(&stop, CU_EVENT_DEFAULT));
}

/* A stream that is held at exit, or a driver that does not return, ends here too. */
static void too_long(int number)
{
    static const char text[] = "driver_costs: not done within the limit\n";
    (void)number;
    _exit(write(STDERR_FILENO, text, sizeof text - 1) < 0 ? 2 : 1);
}

static void limit(const char *seconds)
{
    char *end;
    long value = strtol(seconds, &end, 10);
    if (*seconds == '\0' || *end != '\0' || value < 1 || value > 3600) {
        fprintf(stderr, "driver_costs: --limit is a number of seconds from 1 to 3600, not '%s'\n", seconds);
        exit(2);
    }
    signal(SIGALRM, too_long);
    alarm((unsigned)value);
}

/* The bit of the part in `wanted`. */
static unsigned part_named(const char *name)
{
    for (unsigned p = 0; p < PARTS; p++)
        if (strcmp(name, parts[p].name) == 0)
            return 1u << p;
    fprintf(stderr, "driver_costs: '%s' is none of --quick, --limit SECONDS, duplex, host, device, behind\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    unsigned wanted = 0;
    limit("60");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else if (strcmp(argv[i], "--limit") == 0 && i + 1 < argc)
            limit(argv[++i]);
        else
            wanted |= part_named(argv[i]);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    prepare();
    for (unsigned p = 0; p < PARTS; p++)
        if ((!wanted || wanted & 1u << p) && possible(parts[p].needs))
            parts[p].print();
    return 0;
}
