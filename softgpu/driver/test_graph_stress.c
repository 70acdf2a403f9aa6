/* SPDX-License-Identifier: Apache-2.0 */
/* Many graphs launched in random turn, changed and made anew between: exact, and nothing grows. */
#include "test_graph_util.h"
#include <dirent.h>
#include <malloc.h>

TestSuite(graph_stress, .timeout = 120);

#define GRAPHS 20
#define BRANCHES 3
#define TURNS 1500

static CUgraphExec graphs[GRAPHS];
static CUstream streams[BRANCHES];
static CUdeviceptr words; /* of each graph, one for each branch */
static uint32_t expected[GRAPHS][BRANCHES];
static unsigned seed = 1;

static unsigned chance(unsigned n)
{
    seed = seed * 1103515245 + 12345;
    return (seed >> 16) % n;
}

static CUdeviceptr word_of(int graph, int branch)
{
    return words + 4 * (unsigned)(graph * BRANCHES + branch);
}

static void add_at(CUdeviceptr p, uint32_t value, CUstream on)
{
    struct add a = {p, value};
    void *params[] = {&a};
    OK(cuLaunchKernel(adder, 1, 1, 1, 1, 1, 1, 0, on, params, NULL));
}

/* Each branch adds 1 to its word, and then the sum of all is added to that of the first. */
static CUgraph make(int graph)
{
    begin(streams[0]);
    for (int b = 1; b < BRANCHES; b++)
        follow(streams[0], streams[b]);
    for (int b = 0; b < BRANCHES; b++)
        add_at(word_of(graph, b), 1, streams[b]);
    for (int b = 1; b < BRANCHES; b++)
        follow(streams[b], streams[0]);
    add_at(word_of(graph, 0), BRANCHES, streams[0]);
    return end(streams[0]);
}

static void make_anew(int graph)
{
    CUgraph g = make(graph);
    if (graphs[graph])
        OK(cuGraphExecDestroy(graphs[graph])); /* it may run */
    graphs[graph] = executable(g);
    OK(cuGraphDestroy(g));
}

static void update(int graph)
{
    CUgraphExecUpdateResultInfo info;
    CUgraph g = make(graph);
    OK(cuGraphExecUpdate(graphs[graph], g, &info));
    OK(cuGraphDestroy(g));
}

static void turn(void)
{
    int graph = (int)chance(GRAPHS);
    CUstream on = streams[graph % BRANCHES]; /* a graph that is made anew stays on its stream */
    unsigned what = chance(50);
    if (what == 0)
        make_anew(graph);
    else if (what == 1)
        update(graph);
    launch(graphs[graph], on);
    expected[graph][0] += 1 + BRANCHES;
    for (int b = 1; b < BRANCHES; b++)
        expected[graph][b]++;
    if (what == 2)
        OK(cuStreamSynchronize(on));
}

static size_t descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    size_t n = 0;
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

static void run_turns(void)
{
    static uint32_t got[GRAPHS][BRANCHES];
    for (int i = 0; i < TURNS; i++)
        turn();
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(got, words, sizeof(got)));
    cr_assert(!memcmp(got, expected, sizeof(got)));
}

static void make_all(void)
{
    setup();
    OK(cuMemAlloc(&words, sizeof(expected)));
    OK(cuMemsetD8(words, 0, sizeof(expected)));
    for (int b = 0; b < BRANCHES; b++)
        OK(cuStreamCreate(&streams[b], CU_STREAM_NON_BLOCKING));
    OK(cuCtxSynchronize());
    for (int g = 0; g < GRAPHS; g++)
        make_anew(g);
}

Test(graph_stress, nothing_grows)
{
    make_all();
    run_turns();
    usleep(100000); /* the lanes of destroyed graphs end */
    size_t before = mallinfo2().uordblks, open_before = descriptors();
    run_turns();
    usleep(100000);
    size_t after = mallinfo2().uordblks;
    cr_assert(after < before + 65536, "%zu bytes more", after - before);
    cr_assert_eq(descriptors(), open_before);
    expect_no_report();
}

Test(graph_stress, nothing_races)
{
    char path[64], stats[80];
    snprintf(path, sizeof(path), "/tmp/softgpu-graphs-%d", (int)getpid());
    snprintf(stats, sizeof(stats), "%s.stats", path);
    setenv("SOFTGPU_RACE", path, 1);
    make_all();
    run_turns();
    expect_no_report();
    unlink(path);
    unlink(stats);
}
