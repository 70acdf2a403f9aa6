/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that start others while they use CUDA: children that exec, children that only print, and children that are
 * such programs themselves. The parent's gathers stay exact, and the children say nothing that is not theirs.
 *
 *   children         two ranks; each starts children between the call of a gather and its use
 *   children solo    what a child may be: two ranks in one process
 */
#include "forms.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARD ((size_t)100000)

enum kind { CHILD_EXEC, CHILD_PRINTS, CHILD_LEAVES, CHILD_SHELL, CHILD_SOLO, CHILD_KINDS };

static const char *const expected[CHILD_KINDS] = {"", "child\n", "", "shell\n", "solo\n"};

static void be(enum kind kind)
{
    switch (kind) {
    case CHILD_EXEC:
        execl("/bin/true", "true", (char *)NULL);
        break;
    case CHILD_PRINTS:
        printf("child\n");
        exit(0);
    case CHILD_LEAVES:
        _exit(0);
    case CHILD_SHELL:
        execl("/bin/sh", "sh", "-c", "echo shell; /bin/true", (char *)NULL);
        break;
    case CHILD_SOLO:
        execl("/proc/self/exe", "children", "solo", (char *)NULL);
        break;
    case CHILD_KINDS:
        break;
    }
    _exit(9);
}

/* What the child writes to stdout and stderr. */
static int run_child(enum kind kind, char *text, size_t room)
{
    int ends[2], status;
    size_t have = 0;
    ssize_t got;
    fflush(NULL);
    if (pipe(ends))
        DIE(3, "pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        be(kind);
    }
    close(ends[1]);
    while (have + 1 < room && (got = read(ends[0], text + have, room - have - 1)) > 0)
        have += (size_t)got;
    text[have] = '\0';
    close(ends[0]);
    waitpid(pid, &status, 0);
    return status;
}

/* A child that gathers is a job of its own, whose end slipring tells of. */
static void drop_closing_line(char *text)
{
    char *said = strstr(text, "all-gathers went over the ring");
    if (!said)
        return;
    char *end = strchr(said, '\n');
    while (said > text && said[-1] != '\n')
        said--;
    memmove(said, end ? end + 1 : "", end ? strlen(end + 1) + 1 : 1);
}

static void body(struct rank *r)
{
    char text[4096];
    struct gather g;
    rank_open(r);
    gather_alloc(&g, r->rank, r->nranks, SHARD);
    for (int kind = 0; kind < CHILD_KINDS; kind++) {
        uint64_t seed = (uint64_t)kind + 1;
        gather_load(&g, seed, r->stream);
        if (kind % r->nranks == r->rank)
            hold(r->stream, 30);
        gather_call(&g, r->comm, r->stream);
        int status = run_child((enum kind)kind, text, sizeof text);
        EXPECT(status == 0, "rank %d: child %d ended with %#x", r->rank, kind, (unsigned)status);
        if (kind == CHILD_SOLO)
            drop_closing_line(text);
        EXPECT(!strcmp(text, expected[kind]), "rank %d: child %d wrote \"%s\"", r->rank, kind, text);
        gather_check(&g, seed, r->stream, "with a child");
    }
    gather_free(&g);
    rank_close(r);
}

static int solo(void)
{
    struct gather g[2];
    ncclComm_t comm[2];
    cudaStream_t s[2];
    NCCL(ncclCommInitAll(comm, 2, NULL));
    for (int d = 0; d < 2; d++) {
        CUDA(cudaSetDevice(d));
        CUDA(cudaStreamCreate(&s[d]));
        gather_alloc(&g[d], d, 2, SHARD);
        gather_load(&g[d], 9, s[d]);
    }
    NCCL(ncclGroupStart());
    for (int d = 0; d < 2; d++)
        gather_call(&g[d], comm[d], s[d]);
    NCCL(ncclGroupEnd());
    for (int d = 0; d < 2; d++) {
        CUDA(cudaSetDevice(d));
        gather_check(&g[d], 9, s[d], "solo");
        NCCL(ncclCommDestroy(comm[d]));
    }
    puts("solo");
    return wrong_count() ? 1 : 0;
}

int main(int argc, char **argv)
{
    (void)argv;
    return argc > 1 ? solo() : forms_run(2, 60, body, NULL);
}
