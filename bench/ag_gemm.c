/* SPDX-License-Identifier: Apache-2.0 */
/* ag_gemm: the job of a tensor-parallel layer, all-gather then GEMM, as a plain NCCL and cuBLAS
 * program. Here it starts the ranks and watches them: processes that are forked, threads, or this
 * process as one rank of many. */
#include "ag_rank.h"
#include "ag_report.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* One started rank: a child process or a thread. */
struct worker {
    const struct ag_options *options;
    struct ag_shared *shared;
    int rank, device_index;
    pid_t pid; /* 0: not a process, or already reaped */
    pthread_t thread;
};

/* When the watch gives up: at --timeout, or --grace after the first failure. */
struct deadline {
    double timeout, grace;
};

static enum ag_status overall(const struct ag_shared *shared)
{
    enum ag_status status = AG_OK;
    for (int i = 0; i < shared->ranks; i++) {
        const int state = shared->records[i].state;
        if (state == AG_RUNNING)
            return AG_TIMEOUT;
        if (state > (int)status)
            status = (enum ag_status)state;
    }
    return status;
}

static int out_of_time(struct deadline *deadline, const struct ag_options *options, struct ag_shared *shared)
{
    const double now = ag_now();
    if (now > deadline->timeout) {
        fprintf(stderr, "ag_gemm: not finished after %ld s\n", options->timeout);
        return 1;
    }
    if (!atomic_load(&shared->failed))
        return 0;
    if (deadline->grace == 0)
        deadline->grace = now + (double)options->grace;
    if (now <= deadline->grace)
        return 0;
    fprintf(stderr, "ag_gemm: a rank has failed and others have not ended within %ld s\n", options->grace);
    return 1;
}

static void say_how_it_died(const struct worker *worker, int wait_status)
{
    struct ag_record *record = &worker->shared->records[worker->rank];
    char how[64];
    if (WIFSIGNALED(wait_status))
        snprintf(how, sizeof(how), "killed by signal %d", WTERMSIG(wait_status));
    else
        snprintf(how, sizeof(how), "exited with status %d", WEXITSTATUS(wait_status));
    snprintf(record->error, sizeof(record->error), "%s in %s, iteration %ld", how, ag_phase_name(record->phase),
             (long)record->iteration);
    fprintf(stderr, "ag_gemm: rank %d: %s\n", worker->rank, record->error);
}

/* A child's exit status is its rank's state. Any other end is a death, also one on the way out: a
 * crash in a library's destructor, or a sanitizer's report. */
static int reap(struct worker *workers, int count)
{
    int alive = 0;
    for (int i = 0; i < count; i++) {
        int wait_status;
        if (!workers[i].pid)
            continue;
        if (waitpid(workers[i].pid, &wait_status, WNOHANG) == 0) {
            alive++;
            continue;
        }
        workers[i].pid = 0;
        struct ag_record *record = &workers[i].shared->records[i];
        if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != record->state) {
            say_how_it_died(&workers[i], wait_status);
            ag_end(workers[i].shared, i, AG_ERROR);
            atomic_store(&record->state, AG_ERROR);
            atomic_store(&workers[i].shared->failed, 1);
        }
    }
    return alive;
}

static void kill_all(struct worker *workers, int count)
{
    for (int i = 0; i < count; i++) {
        if (!workers[i].pid)
            continue;
        kill(workers[i].pid, SIGKILL);
        waitpid(workers[i].pid, NULL, 0);
        workers[i].pid = 0;
    }
}

static int start_process(struct worker *worker)
{
    const pid_t parent = getpid();
    fflush(NULL);
    worker->pid = fork();
    if (worker->pid < 0) {
        fprintf(stderr, "ag_gemm: fork: %s\n", strerror(errno));
        worker->pid = 0;
        return -1;
    }
    if (worker->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* no ranks are left behind when the parent is killed */
        if (getppid() != parent)
            _exit(AG_ERROR);
        ag_rank_run(worker->options, worker->shared, worker->rank, worker->device_index);
        exit(worker->shared->records[worker->rank].state);
    }
    return 0;
}

static void *thread_main(void *argument)
{
    const struct worker *worker = argument;
    ag_rank_run(worker->options, worker->shared, worker->rank, worker->device_index);
    return NULL;
}

static int start_thread(struct worker *worker)
{
    const int error = pthread_create(&worker->thread, NULL, thread_main, worker);
    if (error)
        fprintf(stderr, "ag_gemm: pthread_create: %s\n", strerror(error));
    return error ? -1 : 0;
}

static struct worker *make_workers(const struct ag_options *options, struct ag_shared *shared)
{
    struct worker *workers = calloc((size_t)shared->ranks, sizeof(*workers));
    for (int i = 0; workers && i < shared->ranks; i++)
        workers[i] = (struct worker){.options = options, .shared = shared, .rank = i, .device_index = i};
    return workers;
}

static enum ag_status report(const struct ag_options *options, const struct ag_shared *shared, const char *how)
{
    const enum ag_status status = overall(shared);
    ag_report_table(options, shared, how);
    return ag_report_json(options, shared, how, status) == 0 ? status : AG_ERROR;
}

/* A rank that did not end because another one had failed is part of that failure, not a timeout. */
static void settle(struct ag_shared *shared)
{
    if (!atomic_load(&shared->failed))
        return;
    for (int i = 0; i < shared->ranks; i++)
        if (shared->records[i].state == AG_RUNNING) {
            struct ag_record *record = &shared->records[i];
            snprintf(record->error, sizeof(record->error), "did not end after another rank had failed");
            ag_end(shared, i, AG_ERROR);
        }
}

static enum ag_status run_processes(const struct ag_options *options, struct ag_shared *shared, struct worker *workers)
{
    struct deadline deadline = {.timeout = ag_now() + (double)options->timeout};
    int started = 0;
    while (started < shared->ranks && start_process(&workers[started]) == 0)
        started++;
    if (started < shared->ranks) {
        kill_all(workers, started);
        return AG_ERROR;
    }
    while (reap(workers, started) > 0) {
        if (out_of_time(&deadline, options, shared)) {
            ag_report_places(shared);
            kill_all(workers, started);
            settle(shared);
            break;
        }
        ag_sleep(0.005);
    }
    return report(options, shared, "processes");
}

/* Threads that hang can not be ended, so giving up ends the process. */
static enum ag_status watch_threads(const struct ag_options *options, struct ag_shared *shared, int wait_for,
                                    const char *how)
{
    struct deadline deadline = {.timeout = ag_now() + (double)options->timeout};
    while (atomic_load(&shared->done) < wait_for) {
        if (out_of_time(&deadline, options, shared)) {
            ag_report_places(shared);
            settle(shared);
            const enum ag_status status = report(options, shared, how);
            fflush(NULL);
            _exit(status == AG_OK ? AG_TIMEOUT : status);
        }
        ag_sleep(0.005);
    }
    return AG_OK;
}

static enum ag_status run_threads(const struct ag_options *options, struct ag_shared *shared, struct worker *workers)
{
    for (int i = 0; i < shared->ranks; i++)
        if (start_thread(&workers[i]) != 0)
            exit(AG_ERROR);
    watch_threads(options, shared, shared->ranks, "threads");
    for (int i = 0; i < shared->ranks; i++)
        pthread_join(workers[i].thread, NULL);
    return report(options, shared, "threads");
}

/* The first of the names that is set to a number, or -1. */
static int number_from(const char *const names[])
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        if (text && *text)
            return atoi(text);
    }
    return -1;
}

static int place_from_environment(int *rank, int *world, int *local)
{
    static const char *const ranks[] = {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", NULL};
    static const char *const worlds[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", NULL};
    static const char *const locals[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", NULL};
    *rank = number_from(ranks);
    *world = number_from(worlds);
    *local = number_from(locals);
    if (*local < 0)
        *local = *rank;
    return *world >= 1 && *world <= 1024 && *rank >= 0 && *rank < *world ? 0 : -1;
}

static enum ag_status run_environment(const struct ag_options *options)
{
    struct worker self = {.options = options};
    int world;
    if (place_from_environment(&self.rank, &world, &self.device_index) != 0) {
        fprintf(stderr, "ag_gemm: --id-file needs RANK and WORLD_SIZE, OMPI_COMM_WORLD_RANK and _SIZE, or "
                        "SLURM_PROCID and SLURM_NTASKS\n");
        return AG_USAGE;
    }
    self.shared = ag_shared_meet(options->id_file, self.rank, world, options->timeout);
    if (!self.shared || start_thread(&self) != 0)
        return AG_ERROR;
    /* Rank 0 stays until all have ended: it prints for all, and the file is its. */
    struct deadline deadline = {.timeout = ag_now() + (double)options->timeout};
    struct ag_record *record = &self.shared->records[self.rank];
    while (record->state == AG_RUNNING || (self.rank == 0 && atomic_load(&self.shared->done) < world)) {
        if (out_of_time(&deadline, options, self.shared)) {
            ag_report_places(self.shared);
            break;
        }
        ag_sleep(0.005);
    }
    const int ended = record->state != AG_RUNNING;
    if (self.rank == 0)
        settle(self.shared);
    const enum ag_status status = self.rank == 0 ? report(options, self.shared, "environment")
                                  : ended        ? (enum ag_status)record->state
                                                 : AG_TIMEOUT;
    ag_shared_leave(options->id_file, self.rank);
    if (!ended) { /* the thread hangs in a library */
        fflush(NULL);
        _exit(status);
    }
    pthread_join(self.thread, NULL);
    return status;
}

/* Runs everything and prints the results. */
static enum ag_status launch(const struct ag_options *options)
{
    if (*options->id_file)
        return run_environment(options);
    struct ag_shared *shared = ag_shared_create((int)(options->threads ? options->threads : options->ranks));
    struct worker *workers = shared ? make_workers(options, shared) : NULL;
    if (!workers) {
        fprintf(stderr, "ag_gemm: out of memory\n");
        return AG_ERROR;
    }
    const enum ag_status status =
        options->threads ? run_threads(options, shared, workers) : run_processes(options, shared, workers);
    free(workers);
    return status;
}

int main(int argc, char **argv)
{
    struct ag_options options;
    const int status = ag_options_parse(&options, argc, argv);
    if (status < 0)
        return AG_OK; /* --help */
    return status == AG_OK ? (int)launch(&options) : status;
}
