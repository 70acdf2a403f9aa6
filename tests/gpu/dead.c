/* SPDX-License-Identifier: Apache-2.0 */
/* A rank is killed or stopped, from outside, in each phase of gathers and GEMMs between two GPUs; the other one is
 * watched.
 *
 *   dead [--only TEXT] [--repeat N] [--seed N] [--quick] [--untold] [--alone]
 *
 * --only    cases whose name begins with it: kill, stop, abort, or more of it
 * --repeat  times for the cases whose moment is random (3)
 * --quick   small matrices, for the software GPU
 * --untold  an error need not be told, as some calls are NCCL's
 * --alone   the survivor has no second thread: it comes back by itself, from a GEMM or NCCL's call by its error
 *
 * SIGKILL: an error must be told within 2 s (or all rounds be complete and right); no round whose event is complete may
 * have a wrong byte; before the abort, or a call that has returned the error, the stream must not be complete unless
 * all is; the abort takes less than 2 s and frees the stream. "blind": the survivor only looks at the stream, for 3 s.
 * "in a call, freed": it did not come back from one until a second thread of its had aborted (dead_other.h).
 * SIGSTOP: no error, and all is exact after SIGCONT; or the survivor aborts meanwhile, in less than 2 s, and neither
 * rank gets a wrong byte. One line a case; when a rank hangs, the stacks of its threads on stderr. Each rank is a
 * process of its own, on a device of its own.
 *
 * Exit status: 0 when all cases passed, else 1.
 */
#include "dead.h"
#include "dead_stack.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FD_ENV "DEAD_PAGE"
#define RANK_ENV "RANK" /* the one that names slipring's log */
#define PROMISED_US 2000000
#define START_US 100000000
#define END_US 60000000
#define STOPPED_US 700000

int64_t dead_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void dead_sleep(int64_t us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

/* --- cases -----------------------------------------------------------------------------------------------------------
 */

enum load { TINY, GEMMS, BEHIND, GIB, TRIED, LOADS };

/* TINY: many small rounds, also reused buffers. GEMMS: fused ones of a millisecond. BEHIND: the survivor has more to
 * do. GIB: 1 GiB gathered, three times. TRIED: with the warm-up fewer rounds than SLIPRING_TRIALS=5 tries ways in, when
 * they begin with call 16. */
static const struct dead_load loads[2][LOADS] = {
    {{1024, 1024, 512, 400, 4, true, 0, 300000},
     {8192, 8192, 4096, 4, 4, true, 0, 9000},
     {8192, 8192, 4096, 1, 1, true, 15, 0},
     {8, 8192, 32768, 3, 3, false, 0, 5000},
     {1024, 1024, 512, 140, 4, true, 0, 100000}},
    {{48, 64, 32, 60, 4, true, 0, 100000},
     {128, 128, 64, 4, 4, true, 0, 10000},
     {128, 128, 64, 1, 1, true, 15, 0},
     {8, 512, 512, 3, 3, false, 0, 80000},
     {48, 64, 32, 140, 4, true, 0, 200000}},
};

static const struct scenario {
    const char *name;
    int signal;
    enum dead_when when;
    enum load load;
    bool blind, abort_stopped, random;
} scenarios[] = {
    {"kill before its call", SIGKILL, DEAD_BEFORE, GEMMS, false, false, false},
    {"kill while the peer waits", SIGKILL, DEAD_WAITING, GEMMS, false, false, false},
    {"kill while the peer waits, blind", SIGKILL, DEAD_WAITING, GEMMS, true, false, false},
    {"kill in fused GEMMs", SIGKILL, DEAD_BUSY, GEMMS, false, false, true},
    {"kill in fused GEMMs, blind", SIGKILL, DEAD_BUSY, GEMMS, true, false, true},
    {"kill after its gather", SIGKILL, DEAD_AFTER, BEHIND, false, false, false},
    {"kill in 1 GiB", SIGKILL, DEAD_BUSY, GIB, false, false, true},
    {"kill in 1 GiB, blind", SIGKILL, DEAD_BUSY, GIB, true, false, true},
    {"kill at any time", SIGKILL, DEAD_BUSY, TINY, false, false, true},
    {"kill while ways are tried", SIGKILL, DEAD_BUSY, TRIED, false, false, true},
    {"stop before its call", SIGSTOP, DEAD_BEFORE, GEMMS, false, false, false},
    {"stop while the peer waits", SIGSTOP, DEAD_WAITING, GEMMS, false, false, false},
    {"stop in fused GEMMs", SIGSTOP, DEAD_BUSY, GEMMS, false, false, true},
    {"stop after its gather", SIGSTOP, DEAD_AFTER, BEHIND, false, false, false},
    {"stop in 1 GiB", SIGSTOP, DEAD_BUSY, GIB, false, false, true},
    {"stop at any time", SIGSTOP, DEAD_BUSY, TINY, false, false, true},
    {"abort beside a stopped one, waiting", SIGSTOP, DEAD_WAITING, GEMMS, false, true, false},
    {"abort beside a stopped one, fused GEMMs", SIGSTOP, DEAD_BUSY, GEMMS, false, true, true},
    {"abort beside a stopped one, any time", SIGSTOP, DEAD_BUSY, TINY, false, true, true},
};

static struct {
    const char *only;
    int repeat;
    unsigned seed;
    bool quick, untold, alone;
} options = {.only = "", .repeat = 3, .seed = 1};

static void fail(const char *what)
{
    fprintf(stderr, "dead: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* --- one case --------------------------------------------------------------------------------------------------------
 */

struct running {
    struct dead_page *page;
    int fd;
    pid_t pid[DEAD_RANKS]; /* 0: reaped */
    int status[DEAD_RANKS];
};

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static pid_t start_rank(const struct running *c, int rank)
{
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_number(FD_ENV, c->fd);
    set_number(RANK_ENV, rank);
    execl("/proc/self/exe", "dead", (char *)NULL);
    _exit(127);
}

static void map_page(struct running *c)
{
    c->fd = memfd_create("dead", 0);
    if (c->fd < 0 || ftruncate(c->fd, sizeof *c->page) != 0)
        fail("no shared page");
    c->page = mmap(NULL, sizeof *c->page, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (c->page == MAP_FAILED)
        fail("no shared page");
}

static void reap(struct running *c)
{
    for (int r = 0; r < DEAD_RANKS; r++)
        if (c->pid[r] && waitpid(c->pid[r], &c->status[r], WNOHANG) == c->pid[r])
            c->pid[r] = 0;
}

/* True once *word >= value; false when time is up or a rank has ended. */
static bool await(struct running *c, const _Atomic uint32_t *word, uint32_t value, int64_t us)
{
    for (int64_t end = dead_now() + us; atomic_load(word) < value; dead_sleep(50)) {
        reap(c);
        if (!c->pid[0] || !c->pid[1] || dead_now() > end)
            return false;
    }
    return true;
}

static bool await_end(struct running *c, int64_t us)
{
    for (int64_t end = dead_now() + us; c->pid[0] || c->pid[1]; dead_sleep(500)) {
        reap(c);
        if (dead_now() > end)
            return false;
    }
    return true;
}

static void strike(struct running *c, int64_t delay_us)
{
    const struct dead_plan *plan = &c->page->plan;
    pid_t victim = c->pid[plan->victim];
    dead_sleep(delay_us);
    atomic_store(&c->page->struck_us, dead_now());
    kill(victim, plan->signal);
    if (plan->signal == SIGKILL)
        return;
    if (plan->abort_stopped)
        await(c, &c->page->mark[1 - plan->victim], DEAD_ENDED, END_US / 4);
    else
        dead_sleep(STOPPED_US);
    atomic_store(&c->page->resumed, 1);
    kill(victim, SIGCONT);
}

static void finish_off(struct running *c)
{
    for (int r = 0; r < DEAD_RANKS; r++)
        if (c->pid[r]) {
            kill(c->pid[r], SIGKILL);
            waitpid(c->pid[r], &c->status[r], 0);
            c->pid[r] = 0;
        }
    munmap(c->page, sizeof *c->page);
    close(c->fd);
}

/* --- verdicts --------------------------------------------------------------------------------------------------------
 */

static const char *verdict_abort(const struct dead_outcome *o)
{
    if (o->wrong)
        return "WRONG BYTES";
    if (o->complete && !o->all_complete && !o->told_by_call)
        return "STREAM COMPLETE";
    if (o->end_us > PROMISED_US)
        return "SLOW ABORT";
    return o->drained ? NULL : "STREAM HELD AFTER THE ABORT";
}

static const char *verdict_killed(const struct dead_plan *plan, const struct dead_outcome *o)
{
    const char *bad = verdict_abort(o);
    if (bad || plan->blind || plan->untold || o->all_complete || o->freed)
        return bad;
    return o->told_us == DEAD_NOT_TOLD ? "NOT TOLD" : o->told_us > PROMISED_US ? "TOLD LATE" : NULL;
}

static const char *verdict_stopped(const struct dead_plan *plan, const struct dead_outcome *o)
{
    if (o->wrong)
        return "WRONG BYTES";
    if (o->told_us != DEAD_NOT_TOLD)
        return "ERROR";
    return o->right == plan->load.rounds && !o->end_us ? NULL : "NOT EXACT";
}

/* NULL: it passed. */
static const char *verdict(const struct running *c, bool in_time)
{
    const struct dead_plan *plan = &c->page->plan;
    const struct dead_outcome *survivor = &c->page->outcome[1 - plan->victim],
                              *victim = &c->page->outcome[plan->victim];
    if (!atomic_load(&c->page->struck_us))
        return "NOT STARTED";
    if (!in_time)
        return survivor->ended ? "VICTIM HANGS" : "HANGS";
    if (!survivor->ended || c->status[1 - plan->victim] || (plan->signal == SIGSTOP && c->status[plan->victim]))
        return "ENDED BADLY";
    if (plan->signal == SIGKILL)
        return verdict_killed(plan, survivor);
    if (plan->abort_stopped)
        return verdict_abort(survivor) ? verdict_abort(survivor) : verdict_abort(victim);
    return verdict_stopped(plan, survivor) ? verdict_stopped(plan, survivor) : verdict_stopped(plan, victim);
}

static void print_head(void)
{
    puts("| case | victim | signal after ms | error told after ms | rounds exact | wrong | stream before the end | "
         "abort ms | verdict |\n"
         "| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
}

static void print_case(const char *name, const struct running *c, int64_t delay_us, const char *bad)
{
    const struct dead_plan *plan = &c->page->plan;
    const struct dead_outcome *o = &c->page->outcome[1 - plan->victim], *v = &c->page->outcome[plan->victim];
    char told[40] = "-";
    if (plan->blind)
        snprintf(told, sizeof told, "not asked");
    else if (o->freed)
        snprintf(told, sizeof told, "in a call, freed");
    else if (o->told_us != DEAD_NOT_TOLD)
        snprintf(told, sizeof told, "%.0f%s", (double)o->told_us / 1e3, o->told_by_call ? " (call)" : "");
    printf("| %s | %d | %.1f | %s | %d of %d | %d | %s | ", name, plan->victim, (double)delay_us / 1e3, told, o->right,
           plan->load.rounds, o->wrong + v->wrong, o->complete ? "complete" : "held");
    printf(o->end_us ? "%.0f" : "-", (double)o->end_us / 1e3);
    printf(" | %s%s%s%s%s |\n", bad ? bad : "pass", o->trouble[0] ? ": " : "", o->trouble,
           v->trouble[0] ? "; victim: " : "", v->trouble);
}

static bool run_case(const struct scenario *s, int number)
{
    struct running c = {.pid = {0}};
    uint64_t luck = ((uint64_t)options.seed * 1000003 + (uint64_t)number) * 0x9e3779b97f4a7c15u >> 20;
    map_page(&c);
    c.page->plan = (struct dead_plan){.when = s->when,
                                      .load = loads[options.quick][s->load],
                                      .signal = s->signal,
                                      .victim = number % 2,
                                      .blind = s->blind,
                                      .abort_stopped = s->abort_stopped,
                                      .untold = options.untold,
                                      .alone = options.alone,
                                      .seed = options.seed + (unsigned)number};
    int window = c.page->plan.load.window_us;
    int64_t delay = s->random && window ? (int64_t)(luck % (uint64_t)window) : 0;
    for (int r = 0; r < DEAD_RANKS; r++)
        c.pid[r] = start_rank(&c, r);
    bool in_time = await(&c, &c.page->at, 1, START_US);
    if (in_time) {
        strike(&c, delay);
        in_time = await_end(&c, END_US);
    }
    for (int r = 0; r < DEAD_RANKS && !in_time; r++)
        if (c.pid[r])
            dead_stack_show(c.pid[r]);
    const char *bad = verdict(&c, in_time);
    print_case(s->name, &c, delay, bad);
    finish_off(&c);
    return !bad;
}

static void parse(char **argv)
{
    for (argv++; argv[0]; argv++) {
        if (!strcmp(argv[0], "--quick"))
            options.quick = true;
        else if (!strcmp(argv[0], "--untold"))
            options.untold = true;
        else if (!strcmp(argv[0], "--alone"))
            options.alone = true;
        else if (!strcmp(argv[0], "--only") && argv[1])
            options.only = *++argv;
        else if (!strcmp(argv[0], "--repeat") && argv[1])
            options.repeat = atoi(*++argv);
        else if (!strcmp(argv[0], "--seed") && argv[1])
            options.seed = (unsigned)atoi(*++argv);
        else
            errno = EINVAL, fail(argv[0]);
    }
}

static int rank_main(const char *fd)
{
    struct dead_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(fd), 0);
    const char *rank = getenv(RANK_ENV);
    if (page == MAP_FAILED || !rank)
        fail("no shared page");
    dead_stack_ready();
    return dead_rank(page, atoi(rank));
}

int main(int argc, char **argv)
{
    int failed = 0, run = 0;
    (void)argc;
    if (getenv(FD_ENV))
        return rank_main(getenv(FD_ENV));
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argv);
    print_head();
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        for (int n = 0; !strncmp(scenarios[i].name, options.only, strlen(options.only)) &&
                        n < (scenarios[i].random ? options.repeat : 2);
             n++)
            failed += !run_case(&scenarios[i], n), run++;
    printf("%d cases, %d failed\n", run, failed);
    return failed || !run;
}
