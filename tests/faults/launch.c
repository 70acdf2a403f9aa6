/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks of a fault test, each with an environment of its own, and judges how each of them ends.
 *
 *   launch [OPTION]... RANKS -- PROGRAM [ARGUMENT...]
 *
 *   --rank R NAME=VALUE   environment of rank R only (NAME= removes the variable)
 *   --end R HOW           how rank R must end: an exit status, "kill", "term", or "any"; default 0
 *   --seconds S           ranks that have not ended by then are killed, and the test has failed (default 20)
 *   --term-after MS       MS after the first rank was killed, the rest is sent SIGTERM, as a job starter does
 *   --cont-after MS       a rank that stops is continued MS later
 *   --kill-at MS          all ranks are killed MS after the start
 *
 * It is the reaper of everything that the ranks start: a process that outlives its rank is a failure too.
 */
#include "board.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_ENV 16
#define END_SIGNAL 256
#define END_ANY -1
#define NEVER INT64_MAX

static struct {
    int n, seconds, term_after, cont_after, kill_at;
    int end[BOARD_RANKS];
    char *env[BOARD_RANKS][MAX_ENV];
    int nenv[BOARD_RANKS];
    char **command;
} plan = {.seconds = 20, .term_after = -1, .cont_after = -1, .kill_at = -1};

static struct {
    pid_t pid;
    bool ended;
    int how;
    int64_t cont_at;
} ranks[BOARD_RANKS];

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void die(const char *what, const char *about)
{
    fprintf(stderr, "launch: %s: %s\n", what, about);
    exit(2);
}

static int parse_rank(const char *s)
{
    char *end;
    long r = strtol(s, &end, 10);
    if (end == s || *end || r < 0 || r >= BOARD_RANKS)
        die("not a rank", s);
    return (int)r;
}

static int parse_end(const char *s)
{
    if (!strcmp(s, "kill"))
        return END_SIGNAL + SIGKILL;
    if (!strcmp(s, "term"))
        return END_SIGNAL + SIGTERM;
    return !strcmp(s, "any") ? END_ANY : atoi(s);
}

static void add_env(int rank, char *assignment)
{
    if (plan.nenv[rank] == MAX_ENV || !strchr(assignment, '='))
        die("can not set", assignment);
    plan.env[rank][plan.nenv[rank]++] = assignment;
}

/* One option at argv[0]; returns how many words it took. */
static int option(char **argv)
{
    const struct {
        const char *name;
        int *value;
    } numbers[] = {{"--seconds", &plan.seconds},
                   {"--term-after", &plan.term_after},
                   {"--cont-after", &plan.cont_after},
                   {"--kill-at", &plan.kill_at}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(argv[0], numbers[i].name) && argv[1]) {
            *numbers[i].value = atoi(argv[1]);
            return 2;
        }
    if (!argv[1] || !argv[2])
        die("incomplete", argv[0]);
    if (!strcmp(argv[0], "--rank"))
        add_env(parse_rank(argv[1]), argv[2]);
    else if (!strcmp(argv[0], "--end"))
        plan.end[parse_rank(argv[1])] = parse_end(argv[2]);
    else
        die("unknown option", argv[0]);
    return 3;
}

static void parse(char **argv)
{
    for (argv++; *argv && !strncmp(*argv, "--", 2);)
        argv += option(argv);
    if (!argv[0] || !argv[1] || strcmp(argv[1], "--") || !argv[2])
        die("usage", "launch [OPTION]... RANKS -- PROGRAM [ARGUMENT...]");
    plan.n = atoi(argv[0]);
    if (plan.n < 1 || plan.n > BOARD_RANKS)
        die("number of ranks", argv[0]);
    plan.command = argv + 2;
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static int make_board(void)
{
    int fd = memfd_create("fault-board", 0);
    if (fd < 0 || ftruncate(fd, sizeof(struct board)) != 0)
        die("no shared page", strerror(errno));
    return fd;
}

static void run_rank(int r)
{
    set_number(BOARD_RANK_ENV, r);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a launcher that is killed itself leaves nothing behind */
    for (int i = 0; i < plan.nenv[r]; i++) {
        char *equals = strchr(plan.env[r][i], '=');
        if (equals[1])
            putenv(plan.env[r][i]);
        else
            *equals = 0, unsetenv(plan.env[r][i]);
    }
    execvp(plan.command[0], plan.command);
    fprintf(stderr, "launch: %s: %s\n", plan.command[0], strerror(errno));
    _exit(127);
}

static void signal_all(int sig)
{
    for (int r = 0; r < plan.n; r++)
        if (!ranks[r].ended)
            kill(ranks[r].pid, sig);
}

static int rank_of(pid_t pid)
{
    for (int r = 0; r < plan.n; r++)
        if (ranks[r].pid == pid)
            return r;
    return -1;
}

/* Takes one change of state. Returns the number of ranks that ended by it; *first_kill: when a rank was first killed.
 */
static int take_change(pid_t pid, int status, int64_t *first_kill)
{
    int r = rank_of(pid);
    if (r < 0 || WIFCONTINUED(status))
        return 0; /* a stray; counted at the end */
    if (WIFSTOPPED(status)) {
        ranks[r].cont_at = plan.cont_after < 0 ? NEVER : now_ms() + plan.cont_after;
        return 0;
    }
    ranks[r].ended = true;
    ranks[r].how = WIFEXITED(status) ? WEXITSTATUS(status) : END_SIGNAL + WTERMSIG(status);
    if (ranks[r].how == END_SIGNAL + SIGKILL && *first_kill == NEVER)
        *first_kill = now_ms();
    return 1;
}

static void act(int64_t start, int64_t first_kill)
{
    int64_t now = now_ms();
    if (plan.kill_at >= 0 && now >= start + plan.kill_at)
        signal_all(SIGKILL);
    if (plan.term_after >= 0 && first_kill != NEVER && now >= first_kill + plan.term_after)
        signal_all(SIGTERM);
    for (int r = 0; r < plan.n; r++)
        if (!ranks[r].ended && now >= ranks[r].cont_at) {
            ranks[r].cont_at = NEVER;
            kill(ranks[r].pid, SIGCONT);
        }
}

/* Returns false when time ran out. */
static bool wait_all(void)
{
    int64_t start = now_ms(), first_kill = NEVER;
    int left = plan.n, status;
    while (left > 0) {
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0)
            left -= take_change(pid, status, &first_kill);
        act(start, first_kill);
        if (left > 0 && now_ms() >= start + plan.seconds * 1000) {
            for (int r = 0; r < plan.n; r++)
                if (!ranks[r].ended)
                    fprintf(stderr, "launch: rank %d hangs: not ended after %d s (mark %u)\n", r, plan.seconds,
                            atomic_load(&board()->mark[r]));
            signal_all(SIGKILL);
            return false;
        }
        if (left > 0)
            board_sleep_ms(2);
    }
    return true;
}

static bool judge(void)
{
    bool good = true;
    for (int r = 0; r < plan.n; r++) {
        if (plan.end[r] == END_ANY || ranks[r].how == plan.end[r])
            continue;
        fprintf(stderr, "launch: rank %d ended with %s %d, expected %s %d\n", r,
                ranks[r].how >= END_SIGNAL ? "signal" : "status", ranks[r].how % END_SIGNAL,
                plan.end[r] >= END_SIGNAL ? "signal" : "status", plan.end[r] % END_SIGNAL);
        good = false;
    }
    return good;
}

/* Whatever the ranks had started is our child by now, if it still runs. */
static bool no_strays(void)
{
    pid_t pid;
    for (int tries = 0; tries < 500; tries++) {
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0)
            return true;
        board_sleep_ms(2);
    }
    fprintf(stderr, "launch: a process outlives the ranks\n");
    return false;
}

int main(int argc, char **argv)
{
    (void)argc;
    parse(argv);
    set_number(BOARD_FD_ENV, make_board());
    set_number(BOARD_NRANKS_ENV, plan.n);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int r = 0; r < plan.n; r++) {
        ranks[r].cont_at = NEVER;
        ranks[r].pid = fork();
        if (ranks[r].pid == 0)
            run_rank(r);
        if (ranks[r].pid < 0)
            die("fork", strerror(errno));
        atomic_store(&board()->pid[r], ranks[r].pid);
    }
    bool in_time = wait_all();
    return in_time && judge() && no_strays() ? 0 : 1;
}
