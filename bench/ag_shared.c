/* SPDX-License-Identifier: Apache-2.0 */
#include "ag_shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char *ag_phase_name(int phase)
{
    static const char *const names[] = {
#define X(name) #name,
        AG_PHASES(X)
#undef X
    };
    return phase >= 0 && phase < (int)(sizeof(names) / sizeof(names[0])) ? names[phase] : "?";
}

double ag_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void ag_sleep(double seconds)
{
    const struct timespec span = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&span, NULL);
}

static size_t bytes_for(int ranks)
{
    return sizeof(struct ag_shared) + (size_t)ranks * sizeof(struct ag_record);
}

static void fill_in(struct ag_shared *shared, int ranks)
{
    shared->ranks = ranks;
    for (int i = 0; i < ranks; i++) {
        shared->records[i].state = AG_RUNNING;
        for (int loop = 0; loop < AG_LOOPS; loop++)
            shared->records[i].times[loop] = (struct ag_times){-1, -1};
    }
    atomic_store(&shared->ready, 1);
}

static struct ag_shared *map(int fd, int ranks)
{
    const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    struct ag_shared *shared = mmap(NULL, bytes_for(ranks), PROT_READ | PROT_WRITE, flags, fd, 0);
    return shared == MAP_FAILED ? NULL : shared;
}

struct ag_shared *ag_shared_create(int ranks)
{
    struct ag_shared *shared = map(-1, ranks);
    if (shared)
        fill_in(shared, ranks);
    return shared;
}

/* Made under another name and renamed, so that the path never names a half-made file. The lock
 * lasts as long as this process: the others tell by it a file whose maker is alive from one that an
 * earlier run left. */
static struct ag_shared *make_file(const char *path, int ranks)
{
    char fresh[4096];
    struct ag_shared *shared = NULL;
    if (snprintf(fresh, sizeof(fresh), "%s.%ld", path, (long)getpid()) >= (int)sizeof(fresh))
        return NULL;
    const int fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return NULL;
    if (flock(fd, LOCK_EX) == 0 && ftruncate(fd, (off_t)bytes_for(ranks)) == 0)
        shared = map(fd, ranks);
    if (shared)
        fill_in(shared, ranks);
    if (!shared || rename(fresh, path) != 0) {
        unlink(fresh);
        return NULL;
    }
    return shared; /* fd stays open: it holds the lock */
}

static struct ag_shared *open_file(const char *path, int ranks)
{
    struct ag_shared *shared = NULL;
    struct stat status;
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    const int maker_lives = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (maker_lives && fstat(fd, &status) == 0 && (size_t)status.st_size == bytes_for(ranks))
        shared = map(fd, ranks);
    close(fd);
    return shared;
}

struct ag_shared *ag_shared_meet(const char *path, int rank, int ranks, long seconds)
{
    const double deadline = ag_now() + (double)seconds;
    struct ag_shared *shared = rank == 0 ? make_file(path, ranks) : NULL;
    for (; rank != 0 && !shared && ag_now() < deadline; ag_sleep(0.02))
        shared = open_file(path, ranks);
    if (!shared)
        fprintf(stderr, "ag_gemm: rank %d: %s %s: %s\n", rank, rank ? "rank 0 did not make" : "can not make", path,
                strerror(errno));
    return shared;
}

void ag_shared_leave(const char *path, int rank)
{
    if (rank == 0)
        unlink(path);
}

int ag_barrier(struct ag_shared *shared)
{
    const int generation = atomic_load(&shared->generation);
    if (atomic_fetch_add(&shared->arrived, 1) == shared->ranks - 1) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->generation, 1);
        return 0;
    }
    while (atomic_load(&shared->generation) == generation) {
        if (atomic_load(&shared->failed))
            return -1;
        ag_sleep(50e-6);
    }
    return 0;
}

void ag_end(struct ag_shared *shared, int rank, enum ag_status status)
{
    int running = AG_RUNNING;
    if (!atomic_compare_exchange_strong(&shared->records[rank].state, &running, (int)status))
        return;
    if (status != AG_OK && status != AG_WRONG)
        atomic_store(&shared->failed, 1);
    atomic_fetch_add(&shared->done, 1);
}
