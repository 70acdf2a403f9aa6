/* SPDX-License-Identifier: Apache-2.0 */
/* Random programs of several ranks, as processes or threads: see plan.h.
 *
 *   fuzz_plan SEED [--list | --about] [--kinds all|NAME,...] [--no NAME,...] [--steps N] [--without N,N,...]
 *
 * --list prints the operations, --about what kind of program it is; neither runs it. --kinds chooses what a program may
 * contain besides gathers, --no leaves kinds out; --steps ends after N steps, --without leaves steps out.
 * FUZZ_MUST_TELL in the environment: a gather that a dead rank keeps from its end has to be told of.
 */
#include "play.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_S 90

static struct plan plan;
static struct board *board;

static const char *const kind_names[] = {
#define X(name, text) #name,
    KINDS(X)
#undef X
};

static bool kinds_of(const char *list, unsigned *kinds)
{
    *kinds = 0;
    if (!strcmp(list, "all"))
        *kinds = (1u << KIND_COUNT) - 1;
    while (*list && *kinds != (1u << KIND_COUNT) - 1) {
        const size_t n = strcspn(list, ",");
        int k = 0;
        while (k < KIND_COUNT && (strlen(kind_names[k]) != n || strncmp(kind_names[k], list, n)))
            k++;
        if (k == KIND_COUNT) {
            fprintf(stderr, "fuzz_plan: unknown kind %.*s\n", (int)n, list);
            return false;
        }
        *kinds |= 1u << k;
        list += n + (list[n] == ',');
    }
    return true;
}

static void list(void)
{
    char text[384];
    for (int i = 0; i < plan.nops; i++) {
        op_text(&plan, &plan.ops[i], text, sizeof text);
        printf("op rank %d step %d: %s\n", plan.ops[i].rank, plan.ops[i].step, text);
    }
}

static void about(void)
{
    static const char *const fates[] = {"lives", "freezes", "dies"};
    printf("%s ranks=%d streams=%d communicators=%d operations=%d calls=%d fate=%s\n",
           plan.threads ? "threads" : "processes", plan.nranks, plan.nstreams, plan.ncomms, plan.nops, plan.ncalls,
           fates[plan.fate]);
}

static void play_rank(void *one)
{
    struct player *p = one;
    rank_place(p->rank, p->plan->nranks);
    player_open(p);
    if (p->plan->fate == LIVES)
        player_play(p);
    else
        player_play_watched(p);
    player_close(p);
}

static int be(int first, int n)
{
    struct player players[RANKS];
    memset(players, 0, sizeof players);
    plan_expect(&plan, plan.threads ? -1 : first);
    if (first == 0) {
        rank_place(0, plan.nranks);
        NCCL(ncclGetUniqueId(&board->id));
        board->id_made = 1;
    }
    while (!board->id_made)
        sleep_ms(1);
    for (int i = 0; i < n; i++) {
        players[i].plan = &plan;
        players[i].board = board;
        players[i].rank = first + i;
    }
    on_threads(n, players, sizeof *players, play_rank);
    plan_free(&plan);
    return wrong_count() ? 1 : 0;
}

static void set_own_environment(const char *rank)
{
    char name[32], *rest;
    snprintf(name, sizeof name, "ZERO_SET_%s", rank);
    const char *set = getenv(name);
    char *copy = strdup(set ? set : "");
    for (char *one = strtok_r(copy, " ", &rest); one; one = strtok_r(NULL, " ", &rest))
        putenv(one);
}

static pid_t start(int rank, int fd, char **argv)
{
    char text[2][16];
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    snprintf(text[0], sizeof text[0], "%d", rank);
    snprintf(text[1], sizeof text[1], "%d", fd);
    setenv("RANK", text[0], 1);
    setenv("FUZZ_FD", text[1], 1);
    set_own_environment(text[0]);
    rank_name_host(rank);
    execv("/proc/self/exe", argv);
    _exit(127);
}

/* The exit status of a rank; 0 also of one whose fate it was to die. */
static int status_of(int rank, int status)
{
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const int s = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (s == 0 || (killed && plan.fate == DIES && rank == plan.victim))
        return 0;
    fprintf(stderr, "rank %d: status %d\n", rank, s);
    return s;
}

/* What happened to a child: awake again, frozen, or at its end (true). */
static bool child_is(int rank, pid_t pid, int status)
{
    if (!WIFSTOPPED(status)) {
        board->gone |= WIFSIGNALED(status);
        return true;
    }
    if (board->frozen && plan.fate == FREEZES && rank == plan.victim) {
        board->gone = 1;
        return false;
    }
    sleep_ms((unsigned)board->rests_ms);
    kill(pid, SIGCONT);
    return false;
}

static void not_in_time(int rank)
{
    char text[384] = "the beginning";
    for (int r = plan.threads ? 0 : rank; r < (plan.threads ? plan.nranks : rank + 1); r++) {
        if (board->at[r])
            op_text(&plan, &plan.ops[board->at[r]], text, sizeof text);
        fprintf(stderr, "rank %d: not finished in time, killed in step %d: %s\n", r, plan.ops[board->at[r]].step, text);
    }
}

static int reap(const pid_t *pid, int n)
{
    const bool freezes = plan.fate == FREEZES;
    bool ended[RANKS] = {false};
    int worst = 0, left = n - freezes, status;
    for (int64_t end = now_ms() + TIMEOUT_S * 1000; left > 0 && now_ms() < end; sleep_ms(2))
        for (int r = 0; r < n; r++) {
            if (ended[r] || waitpid(pid[r], &status, WNOHANG | WUNTRACED) != pid[r] || !child_is(r, pid[r], status))
                continue;
            ended[r] = true;
            left -= !freezes || r != plan.victim;
            const int s = status_of(r, status);
            worst = s > worst ? s : worst;
            if (s > 1)
                end = now_ms() + 10000; /* the others may wait for it for ever */
        }
    for (int r = 0; r < n; r++) {
        if (ended[r])
            continue;
        if (!freezes || r != plan.victim) {
            not_in_time(r);
            worst = 4;
        }
        kill(pid[r], SIGKILL);
        waitpid(pid[r], NULL, 0);
    }
    return worst;
}

static int run(char **argv)
{
    pid_t pid[RANKS];
    const int n = plan.threads ? 1 : plan.nranks;
    const char *child = getenv("FUZZ_FD");
    const int fd = child ? atoi(child) : memfd_create("fuzz", 0);
    if (fd < 0 || ftruncate(fd, sizeof *board) != 0)
        return 2;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED)
        return 2;
    if (child)
        return be(atoi(getenv("RANK")), plan.threads ? plan.nranks : 1);
    for (int r = 0; r < n; r++)
        pid[r] = start(r, fd, argv);
    const int status = reap(pid, n);
    plan_free(&plan);
    return status;
}

static int usage(void)
{
    fprintf(stderr, "usage: fuzz_plan SEED [--list | --about] [--kinds all|NAME,...] [--no NAME,...] [--steps N] "
                    "[--without N,N,...]\nkinds:\n");
#define X(name, text) fprintf(stderr, "  %-10s %s\n", #name, text);
    KINDS(X)
#undef X
    return 2;
}

int main(int argc, char **argv)
{
    unsigned none = 0;
    bool lists = false, tells = false, good = argc > 1;
    struct plan_options o = {.seed = good ? strtoull(argv[1], NULL, 0) : 0, .kinds = ~0u, .steps = 1000};
    for (int i = 2; i < argc && good; i++) {
        if (!strcmp(argv[i], "--list"))
            lists = true;
        else if (!strcmp(argv[i], "--about"))
            tells = true;
        else if (i + 1 < argc && !strcmp(argv[i], "--kinds"))
            good = kinds_of(argv[++i], &o.kinds);
        else if (i + 1 < argc && !strcmp(argv[i], "--no"))
            good = kinds_of(argv[++i], &none);
        else if (i + 1 < argc && !strcmp(argv[i], "--steps"))
            o.steps = atoi(argv[++i]);
        else if (i + 1 < argc && !strcmp(argv[i], "--without"))
            o.without = argv[++i];
        else
            good = false;
    }
    if (!good)
        return usage();
    o.kinds &= ~none;
    plan_make(&plan, &o);
    /* The first of a kind may be in a capture that one rank throws away: NCCL would connect the ranks in it. */
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    if (plan.conditional)
        setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);
    if (tells)
        about();
    if (lists)
        list();
    return lists || tells ? 0 : run(argv);
}
