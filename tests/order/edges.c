/* SPDX-License-Identifier: Apache-2.0 */
/* edges: runs every case in processes of its own, with its edge (silence) and without (a report that names both
 * operations).
 *
 *   edges [CASE]
 */
#include "edges.h"
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct edge_case *const tables[] = {edges_stream,  edges_word,   edges_memory,
                                                 edges_process, edges_unused, edges_graph};
static char folder[] = "/tmp/race-edges-XXXXXX";

void settle(struct edge_env *e, CUstream s)
{
    CUdeviceptr word;

    CU(cuMemHostGetDevicePointer(&word, e->settled, 0));
    CU(cuStreamWriteValue32(s, word, ++e->settles, 0));
    while (__atomic_load_n(e->settled, __ATOMIC_ACQUIRE) != e->settles)
        usleep(100);
}

void fill(struct edge_env *e, CUstream s)
{
    CU(cuMemsetD8Async(e->x, 1, BYTES, s));
}

void look(struct edge_env *e, CUstream s)
{
    CU(cuMemcpyDtoDAsync(e->y, e->x, BYTES, s));
}

void follow(struct edge_env *e, CUstream from, CUstream to)
{
    CU(cuEventRecord(e->event, from));
    CU(cuStreamWaitEvent(to, e->event, 0));
}

void post(struct edge_env *e, int step)
{
    atomic_store(&e->mail->step, step);
}

void await(struct edge_env *e, int step)
{
    while (atomic_load(&e->mail->step) < step)
        usleep(100);
}

static void run(const struct edge_case *c, bool edge, struct mail *mail, bool peer)
{
    struct edge_env e = {.edge = edge, .mail = mail, .settled = &mail->settled[peer]};
    CUcontext ctx;

    CU(cuInit(0));
    CU(cuDevicePrimaryCtxRetain(&ctx, peer));
    CU(cuCtxSetCurrent(ctx));
    CU(cuStreamCreate(&e.a, CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&e.b, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&e.event, CU_EVENT_DISABLE_TIMING));
    CU(cuMemAlloc(&e.x, BYTES));
    CU(cuMemAlloc(&e.y, BYTES));
    CU(cuMemHostRegister(mail, sizeof(*mail), 0));
    CU(cuMemHostGetDevicePointer(&e.flag, &mail->flag, 0));
    (peer ? c->peer : c->body)(&e);
    CU(cuCtxSynchronize());
    exit(0);
}

/* Waits for the case's processes; the worst status. */
static int run_all(const struct edge_case *c, bool edge)
{
    struct mail *mail = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int worst = 0, status;

    fflush(NULL);
    for (int i = 0; i < (c->peer ? 2 : 1); i++) {
        pid_t pid = fork();
        if (!pid)
            run(c, edge, mail, i == 1);
    }
    while (wait(&status) > 0)
        if (status > worst && status != SIGKILL) /* a case may kill itself */
            worst = status;
    munmap(mail, 4096);
    return worst;
}

static bool judge(const struct edge_case *c, bool edge, const char *report)
{
    const char *first = c->first ? c->first : "cuMemsetD8Async", *second = c->second ? c->second : "cuMemcpyDtoDAsync";

    if (edge)
        return !*report;
    return strstr(report, "race: ") && strstr(report, first) && strstr(report, second);
}

static bool passes(const struct edge_case *c, bool edge)
{
    static char text[65536];
    char state[64], report[64];
    size_t n = 0;

    snprintf(state, sizeof(state), "%s/race", folder);
    snprintf(report, sizeof(report), "%s/report", folder);
    setenv("SOFTGPU_RACE", state, 1);
    setenv("SOFTGPU_REPORT", report, 1);
    int status = run_all(c, edge);
    FILE *f = fopen(report, "r");
    if (f) {
        n = fread(text, 1, sizeof(text) - 1, f);
        fclose(f);
    }
    text[n] = 0;
    unlink(report);
    unlink(state);
    bool ok = !status && judge(c, edge, text);
    if (!ok)
        printf("FAILED: %s, %s its edge: status %#x, report:\n%s\n", c->name, edge ? "with" : "without", status, text);
    return ok;
}

/* Beside a process that is stopped with the lock the others go on after a while, and it is said that nothing is judged.
 */
static void go_on(struct edge_env *e)
{
    int status = 0;
    pid_t pid = fork();

    if (!pid)
        stop_with_lock();
    if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
        exit(4);
    fill(e, e->a);
    look(e, e->b);
    CU(cuCtxSynchronize());
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
}

static bool says_frozen(const char *stats)
{
    static const struct edge_case frozen = {.name = "frozen", .body = go_on};
    char line[512] = "";

    unlink(stats);
    bool ok = passes(&frozen, true);
    FILE *f = fopen(stats, "r");
    ok = f && fgets(line, sizeof(line), f) && strstr(line, ", frozen") && ok;
    if (f)
        fclose(f);
    if (!ok)
        printf("FAILED: frozen: statistics: %s\n", line);
    return ok;
}

int main(int argc, char **argv)
{
    char stats[64];
    int failed = 0, ran = 0, unused = dup(2);

    if (!mkdtemp(folder))
        return 2;
    if (!freopen("/dev/null", "w", stderr) && unused < 0) /* reports are expected */
        return 2;
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
        for (const struct edge_case *c = tables[t]; c->name; c++)
            if (argc < 2 || !strcmp(argv[1], c->name)) {
                failed += !passes(c, true) + !passes(c, false);
                ran++;
            }
    snprintf(stats, sizeof(stats), "%s/race.stats", folder);
    if (argc < 2 || !strcmp(argv[1], "frozen")) {
        failed += !says_frozen(stats);
        ran++;
    }
    unlink(stats);
    rmdir(folder);
    printf("%d cases, %d failed\n", ran, failed);
    return failed || !ran;
}
