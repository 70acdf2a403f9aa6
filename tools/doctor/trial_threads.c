/* SPDX-License-Identifier: Apache-2.0 */
/* The trial's form for ranks that are threads of one process, as with ncclCommInitAll. There the devices share virtual
 * memory that all of them have access to; cache/staging.h says why no other. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "tools/doctor/doctor.h"
#include "tools/doctor/trial.h"

struct process {
    struct trial *t;
    int words_fd; /* each rank maps and registers it for itself, as it does with the control block */
    CUdeviceptr block[DOCTOR_MAX_DEVICES];
    struct rank {
        struct process *p;
        struct trial_self self;
        _Atomic uint32_t *words; /* one for each rank: its block may be read */
        CUdeviceptr device_words;
        size_t bytes;
        CUstream stream, other;
    } rank[DOCTOR_MAX_DEVICES];
};

static bool make_streams(struct trial_self *s, struct rank *r)
{
    return TRIAL_TRY(s, TRIAL_THREADS, slr_real, cuStreamCreateWithPriority, &r->stream, CU_STREAM_NON_BLOCKING, 0) &&
           TRIAL_TRY(s, TRIAL_THREADS, slr_real, cuStreamCreateWithPriority, &r->other, CU_STREAM_NON_BLOCKING, 0);
}

/* A block that every device which can reach this one may read. */
static bool make_shared(struct trial_self *s, struct rank *r, CUdeviceptr *block)
{
    const struct trial *t = s->t;
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s->r->device}};
    CUmemAccessDesc access = {.location = p.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    if (!TRIAL_TRY(s, TRIAL_THREADS, s->drv, cuMemGetAllocationGranularity, &r->bytes, &p,
                   CU_MEM_ALLOC_GRANULARITY_MINIMUM) ||
        !TRIAL_TRY(s, TRIAL_THREADS, s->drv, cuMemCreate, &memory, r->bytes, &p, 0) ||
        !TRIAL_TRY(s, TRIAL_THREADS, slr_real, cuMemAddressReserve, block, r->bytes, 0, 0, 0) ||
        !TRIAL_TRY(s, TRIAL_THREADS, slr_real, cuMemMap, *block, r->bytes, 0, memory, 0))
        return false;
    for (int i = 0; i < t->ranks; i++) {
        access.location.id = t->rank[i].device;
        if ((i == s->number || trial_reaches(t, i, s->number)) &&
            !TRIAL_TRY(s, TRIAL_THREADS, slr_real, cuMemSetAccess, *block, r->bytes, &access, 1))
            return false;
    }
    return TRIAL_TRY(s, TRIAL_THREADS, slr_real, cuMemRelease, memory);
}

static bool prepare(struct rank *r)
{
    struct trial_self *s = &r->self;
    void *words = NULL;
    if (!trial_enter(s, TRIAL_THREADS) || !trial_control(s, TRIAL_THREADS, r->p->words_fd, &words, &r->device_words))
        return false;
    r->words = words;
    return make_streams(s, r) && make_shared(s, r, &r->p->block[s->number]) &&
           trial_write(s, TRIAL_THREADS, r->p->block[s->number]) &&
           TRIAL_TRY(s, TRIAL_THREADS, slr_real, cuMemAlloc, &s->copy, (size_t)s->t->ranks * TRIAL_BYTES);
}

static bool reads(const struct trial_self *s, int peer)
{
    return trial_reaches(s->t, s->number, peer) && s->t->rank[peer].offers;
}

/* As the ring does: the copy waits for a word that the peer's stream writes later. */
static bool enqueue(struct rank *r, int peer)
{
    struct trial_self *s = &r->self;
    return TRIAL_TRY(s, TRIAL_THREADS, slr_real, cuStreamWaitValue32, r->stream,
                     r->device_words + (size_t)peer * sizeof *r->words, 1, CU_STREAM_WAIT_VALUE_GEQ) &&
           TRIAL_TRY(s, TRIAL_THREADS, slr_real, cuMemcpyAsync, s->copy + (size_t)peer * TRIAL_BYTES, r->p->block[peer],
                     TRIAL_BYTES, r->stream);
}

static bool write_word(struct rank *r)
{
    CUstreamBatchMemOpParams write = {0};
    write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write.writeValue.address = r->device_words + (size_t)r->self.number * sizeof *r->words;
    write.writeValue.value = 1;
    return TRIAL_TRY(&r->self, TRIAL_THREADS, slr_real, cuStreamBatchMemOp, r->other, 1, &write, 0) &&
           TRIAL_TRY(&r->self, TRIAL_THREADS, slr_real, cuStreamSynchronize, r->other);
}

static bool compare(struct rank *r, int peer)
{
    struct trial_self *s = &r->self;
    unsigned char want[TRIAL_BYTES], got[TRIAL_BYTES] = {0};
    trial_pattern(peer, want);
    if (!TRIAL_TRY(s, TRIAL_THREADS, slr_real, cuMemcpyDtoH, got, s->copy + (size_t)peer * TRIAL_BYTES, TRIAL_BYTES))
        return false;
    return !memcmp(want, got, sizeof got) ||
           trial_bad(s, TRIAL_THREADS, "the copy", "other bytes than the owner wrote");
}

/* What one rank can not do, it says; its peers do not wait for it then. */
static void *run(void *data)
{
    struct rank *r = data;
    struct trial_self *s = &r->self;
    s->r->offers = prepare(r);
    trial_meet(s);
    bool good = s->r->offers;
    for (int peer = 0; peer < s->t->ranks && good; peer++)
        good = !reads(s, peer) || enqueue(r, peer);
    trial_meet(s);
    if (s->r->offers && !write_word(r)) {
        good = false;
        atomic_store(&r->words[s->number], 1);
    }
    good = good && TRIAL_TRY(s, TRIAL_THREADS, slr_real, cuStreamSynchronize, r->stream);
    for (int peer = 0; peer < s->t->ranks && good; peer++)
        good = !reads(s, peer) || compare(r, peer);
    trial_meet(s); /* nobody reads any more; what is left goes with the process */
    s->r->state[TRIAL_THREADS] = good ? TRIAL_GOOD : TRIAL_BAD;
    return NULL;
}

static void job(void *data, int index)
{
    static struct process p;
    struct trial *t = data;
    pthread_t thread[DOCTOR_MAX_DEVICES];
    struct doctor_driver drv;
    char missing[256];
    (void)index;
    p.t = t;
    p.words_fd = trial_memory();
    doctor_driver_load(&drv, missing, sizeof missing); /* once: the table is of the process */
    for (int i = 0; i < t->ranks; i++) {
        p.rank[i] = (struct rank){.p = &p, .self = {.t = t, .r = &t->rank[i], .number = i, .drv = drv}};
        if (pthread_create(&thread[i], NULL, run, &p.rank[i]) != 0)
            _exit(1);
    }
    for (int i = 0; i < t->ranks; i++)
        pthread_join(thread[i], NULL);
}

/* The rank that did not come back: one that waits for another is not the cause. */
static const struct trial_rank *culprit(const struct trial *t)
{
    for (int i = 0; i < t->ranks; i++)
        if (strncmp(t->rank[i].step, "waiting", 7) != 0 && t->rank[i].state[TRIAL_THREADS] == TRIAL_NOT_TRIED)
            return &t->rank[i];
    return &t->rank[0];
}

void doctor_check_threads(struct doctor *d, struct trial *t)
{
    struct child_end end;
    if (t->ranks < 2) {
        doctor_add(d, DOCTOR_ONE_PROCESS, DOCTOR_OK, "one device: nothing to share");
        return;
    }
    child_run(job, t, 1, d->limit_ms, &end);
    const struct trial_rank *bad = end.how == CHILD_ENDED ? NULL : culprit(t);
    if (end.how == CHILD_TIMED_OUT)
        doctor_add(d, DOCTOR_ONE_PROCESS, DOCTOR_WARN, "device %d did not answer within %u s, in %s", bad->device,
                   d->limit_ms / 1000, *bad->step ? bad->step : "a wait");
    else if (bad)
        doctor_add(d, DOCTOR_ONE_PROCESS, DOCTOR_WARN, "the process ended (%s), device %d in %s",
                   end.how == CHILD_SIGNALLED ? strsignal(end.value) : "not started", bad->device,
                   *bad->step ? bad->step : "no call");
    else
        trial_told(d, t, TRIAL_THREADS);
}
