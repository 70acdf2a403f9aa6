/* SPDX-License-Identifier: Apache-2.0 */
/* The race oracle's clocks: queues, the host, and what an operation is ordered after. See race.h. */
#include "race.h"
#include "race_state.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x656c6361726f6773ull
#define FILE_BYTES ((size_t)1 << 30) /* sparse */
#define LOCK_SECONDS 60              /* a machine with other work, under a sanitizer */
#define STOPPED_SECONDS 2            /* for a stopped process to go on */

bool sg_race_on;
struct race_file *race_file;
static pid_t self;
static bool forced; /* a host of this process has ended a stream's wait */

/* ---- the file ---- */

static bool init_file(struct race_file *f)
{
    pthread_mutexattr_t attr;

    f->bytes = FILE_BYTES;
    f->nqueues = 1; /* 0 is no queue */
    race_wipe();
    f->wipes = 0;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    bool ok = !pthread_mutex_init(&f->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    f->magic = MAGIC;
    return ok;
}

static bool map_file(int fd)
{
    if (flock(fd, LOCK_EX) || ftruncate(fd, (off_t)FILE_BYTES))
        return false;
    void *p = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED)
        return false;
    race_file = p;
    return race_file->magic == MAGIC || init_file(race_file);
}

bool race_has_ended(int32_t pid)
{
    for (uint32_t i = 0; i < RACE_EXITS; i++)
        if (race_file->exited[i] == pid)
            return true;
    return false;
}

/* From now on no report waits for what becomes of this process's copies. */
static void report_suspended(void)
{
    struct race_judge j = {.nfound = 0};

    if (race_lock()) {
        race_file->exited[race_file->nexited++ % RACE_EXITS] = (int32_t)self;
        race_unlock();
    }
    do {
        j.nfound = 0;
        if (race_lock()) {
            race_suspended_end(&j, forced);
            race_unlock();
        }
        race_report(&j);
    } while (j.nfound);
}

/* What a run did not judge is as important as what it found: a line for each process. */
static void write_stats(void)
{
    static const char *const sights[] = {[RACE_SEES] = "", [RACE_BLIND] = ", blind", [RACE_FROZEN] = ", frozen"};
    const char *path = getenv("SOFTGPU_RACE");
    char name[4096], line[256];

    if (!path || snprintf(name, sizeof(name), "%s.stats", path) >= (int)sizeof(name))
        return;
    int fd = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    int n =
        snprintf(line, sizeof(line),
                 "pid %d: operations %lu, accesses %lu, races %lu, unused %lu, excused %lu, dropped %lu, wiped %lu%s\n",
                 (int)getpid(), race_file->ops, race_file->checked, race_file->races, race_file->unused,
                 race_file->excused, race_file->dropped, race_file->wipes, sights[race_file->sight]);
    if (fd >= 0 && write(fd, line, (size_t)n) < 0)
        perror("softgpu: race statistics");
    if (fd >= 0)
        close(fd);
}

static void at_exit(void)
{
    if (!sg_race_on || getpid() != self)
        return; /* a child of fork is no user of the driver */
    report_suspended();
    write_stats();
}

void sg_race_load(void)
{
    const char *path = getenv("SOFTGPU_RACE");
    int fd = path && *path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;

    if (!path || !*path)
        return;
    if (fd < 0 || !map_file(fd)) {
        sg_misuse("race oracle: %s: %s", path, strerror(errno));
    } else {
        sg_race_on = true;
        self = getpid();
        atexit(at_exit);
    }
    if (fd >= 0) {
        flock(fd, LOCK_UN); /* the mapping would keep it */
        close(fd);
    }
}

/* The thread that has the lock is in a process that is stopped. The kernel's protocol of robust locks has its number in
 * the lock's word, so there is no moment at which it is not known. */
static bool owner_is_stopped(void)
{
    unsigned word = (unsigned)__atomic_load_n(&race_file->lock.__data.__lock, __ATOMIC_RELAXED);
    char name[64], text[512] = "";

    snprintf(name, sizeof(name), "/proc/%u/stat", word & FUTEX_TID_MASK);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    const char *end = n > 0 ? strrchr(text, ')') : NULL; /* of its name; its state follows */
    return end && !strncmp(end, ") T", 3);
}

static int lock_within(time_t seconds)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    return pthread_mutex_timedlock(&race_file->lock, &until);
}

bool race_lock(void)
{
    enum race_sight lost = RACE_BLIND;

    if (__atomic_load_n(&race_file->sight, __ATOMIC_RELAXED) != RACE_SEES)
        return false;
    int rc = lock_within(STOPPED_SECONDS);
    if (rc == ETIMEDOUT && owner_is_stopped())
        lost = RACE_FROZEN;
    else if (rc == ETIMEDOUT)
        rc = lock_within(LOCK_SECONDS - STOPPED_SECONDS);
    if (rc == EOWNERDEAD) { /* it may have died in the middle of a change */
        pthread_mutex_consistent(&race_file->lock);
        race_wipe();
    } else if (rc) {
        __atomic_store_n(&race_file->sight, lost, __ATOMIC_RELAXED);
        return false;
    }
    return true;
}

void race_unlock(void)
{
    if (race_is_full()) {
        race_file->dropped++;
        race_wipe();
    }
    pthread_mutex_unlock(&race_file->lock);
}

/* ---- clocks ---- */

void sg_clock_free(struct sg_clock *k)
{
    free(k->c);
    *k = (struct sg_clock){NULL, 0};
}

void race_join(struct sg_clock *k, const uint32_t *c, uint32_t n)
{
    while (n && !c[n - 1])
        n--;
    if (n > k->n) {
        k->c = realloc(k->c, n * sizeof(*k->c));
        if (!k->c)
            abort();
        memset(k->c + k->n, 0, (n - k->n) * sizeof(*k->c));
        k->n = n;
    }
    for (uint32_t q = 0; q < n; q++)
        if (c[q] > k->c[q])
            k->c[q] = c[q];
}

void race_joins_host(struct sg_clock *k)
{
    race_join(k, race_file->host, race_file->nqueues);
}

void race_host_joins(const struct sg_clock *k)
{
    for (uint32_t q = 0; q < k->n; q++)
        if (k->c[q] > race_file->host[q])
            race_file->host[q] = k->c[q];
}

void race_all(struct sg_clock *k)
{
    uint32_t all[RACE_QUEUES];

    for (uint32_t q = 0; q < race_file->nqueues; q++)
        all[q] = race_file->queues[q].last;
    race_join(k, all, race_file->nqueues);
}

/* ---- queues ---- */

/* The number of a stream that has ended, if all that it did is before anything that is queued from now on: its
 * successor is then after it, as one number says. So a stream takes its number when its first operation is queued. */
static uint32_t new_queue(void)
{
    struct race_file *f = race_file;
    uint32_t q = 1;

    while (q < f->nqueues && !(f->queues[q].ended && f->host[q] >= f->queues[q].last))
        q++;
    if (q == RACE_QUEUES)
        return 0;
    f->queues[q].ended = false;
    if (q == f->nqueues)
        f->nqueues++;
    return q;
}

static void tick(struct sg_stream *s, struct sg_clock *k)
{
    static const uint32_t zero[RACE_QUEUES];
    uint32_t now[RACE_QUEUES];

    memcpy(now, zero, (s->race_queue + 1) * sizeof(*now));
    now[s->race_queue] = ++race_file->queues[s->race_queue].last;
    race_join(k, now, s->race_queue + 1);
}

void sg_race_stream_ends_locked(struct sg_stream *s)
{
    if (!sg_race_on)
        return;
    race_join(&s->ctx->ended, s->clock.c, s->clock.n);
    if (!(s->flags & CU_STREAM_NON_BLOCKING))
        race_join(&s->ctx->ended_blocking, s->clock.c, s->clock.n);
    sg_clock_free(&s->clock);
    if (s->race_queue && race_lock()) {
        race_file->queues[s->race_queue].ended = true;
        race_unlock();
    }
}

/* ---- operations ---- */

static uint64_t meeting_of(const struct sg_op *op, const void **turn)
{
    bool meets = op->kind == SG_OP_KERNEL && op->u.kernel.desc->meets;
    return meets ? op->u.kernel.desc->meets(op->u.kernel.args, turn) : 0;
}

/* Kernels of one communicator wait for each other inside of the stand-in NCCL; here they follow visibly. */
static void take_turn_locked(struct sg_op *op, const void *turn)
{
    static struct turn {
        struct turn *next;
        const void *of;
        struct sg_fence *last;
    } * turns;
    struct turn *t = turns;

    while (t && t->of != turn)
        t = t->next;
    if (!t && (t = calloc(1, sizeof(*t)))) {
        t->of = turn;
        t->next = turns;
        turns = t;
    }
    if (!t)
        abort();
    sg_op_dep_locked(op, t->last);
    sg_fence_put_locked(t->last);
    t->last = sg_fence_ref_locked(op->fence);
}

void sg_race_queued_locked(struct sg_stream *s, struct sg_op *op)
{
    struct race_place place;
    const void *turn = NULL;

    if (!sg_race_on)
        return;
    op->meeting = meeting_of(op, &turn);
    if (op->meeting)
        take_turn_locked(op, turn);
    if (s->legacy) /* follows streams that are gone, too */
        race_join(&op->clock, s->ctx->ended_blocking.c, s->ctx->ended_blocking.n);
    if (!race_lock())
        return;
    race_joins_host(&op->clock);
    if (!s->race_queue)
        s->race_queue = new_queue();
    if (!s->race_queue)
        race_file->sight = RACE_BLIND; /* more streams than there is room for */
    if (op->kind == SG_OP_WAIT && race_place_of(op, sg_mem_find_locked(op->u.memop.addr), &place))
        race_word_watch(&place);
    race_unlock();
}

void sg_race_start_locked(struct sg_stream *s, struct sg_op *op, bool runs)
{
    struct race_judge j = {.clock = &op->clock};

    if (!sg_race_on)
        return;
    race_join(&op->clock, s->clock.c, s->clock.n);
    for (unsigned i = 0; i < op->ndeps; i++)
        race_join(&op->clock, op->deps[i]->clock.c, op->deps[i]->clock.n);
    if (!race_lock())
        return;
    tick(s, &op->clock);
    race_file->ops++;
    race_file->excused += s->race_forced;
    if (runs && !s->race_forced)
        race_op_accesses(&j, s, op);
    if (op->kind == SG_OP_HOST)
        race_host_joins(&op->clock);
    if (runs && op->meeting)
        race_meet_begin(op->meeting, &op->clock);
    race_unlock();
    race_report(&j);
}

void sg_race_store(struct sg_op *op, void (*store)(struct sg_op *op))
{
    struct race_place place;

    if (!sg_race_on || !race_place_of(op, NULL, &place) || !race_lock()) {
        store(op);
        return;
    }
    race_word_release(&place, op, store);
    race_unlock();
}

void sg_race_done_locked(struct sg_stream *s, struct sg_op *op, bool ran)
{
    struct race_place place;

    if (!sg_race_on)
        return;
    if (ran && (op->kind == SG_OP_WAIT || op->kind == SG_OP_HOST || op->meeting) && race_lock()) {
        if (op->kind == SG_OP_HOST)
            race_joins_host(&op->clock);
        else if (op->kind == SG_OP_KERNEL)
            race_meet_end(op->meeting, &op->clock);
        else if (race_place_of(op, NULL, &place))
            s->race_forced |= race_word_acquire(&place, &op->u.memop, &op->clock) && race_is_file(place.key);
        forced |= s->race_forced;
        race_unlock();
    }
    race_join(&op->fence->clock, op->clock.c, op->clock.n);
    sg_clock_free(&s->clock);
    s->clock = op->clock;
    op->clock = (struct sg_clock){NULL, 0};
}

/* ---- what the host sees ---- */

static void saw(const struct sg_clock *k)
{
    if (k->n && race_lock()) {
        race_host_joins(k);
        race_unlock();
    }
}

void sg_race_saw_fence_locked(const struct sg_fence *f)
{
    if (sg_race_on && f)
        saw(&f->clock);
}

void sg_race_saw_ctx_locked(const struct sg_ctx *ctx)
{
    if (!sg_race_on)
        return;
    saw(&ctx->ended);
    for (const struct sg_stream *s = ctx->streams; s; s = s->next)
        if (s->last && s->last->done)
            saw(&s->last->clock);
}

void sg_race_saw_stream_locked(const struct sg_stream *s)
{
    if (!sg_race_on)
        return;
    sg_race_saw_fence_locked(s->last);
    if (!s->legacy)
        return;
    saw(&s->ctx->ended_blocking);
    for (const struct sg_stream *t = s->ctx->streams; t; t = t->next)
        if (!(t->flags & CU_STREAM_NON_BLOCKING))
            sg_race_saw_fence_locked(t->last);
}

void sg_race_saw_event_locked(const struct sg_event *e)
{
    struct sg_clock k = {NULL, 0};
    struct race_place place;

    if (!sg_race_on)
        return;
    sg_race_saw_fence_locked(e->fence);
    if (!e->shared || !race_lock())
        return;
    struct sg_memop wait = {
        .value = atomic_load(&e->shared->recorded), .flags = CU_STREAM_WAIT_VALUE_GEQ, .wide = true};
    wait.seen = atomic_load(&e->shared->completed);
    race_event_place(e->shared, &place);
    if (wait.value)
        race_word_acquire(&place, &wait, &k);
    race_host_joins(&k);
    race_unlock();
    sg_clock_free(&k);
}
