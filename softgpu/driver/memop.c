/* SPDX-License-Identifier: Apache-2.0 */
/* Stream memory operations. A wait polls, sleeping on the word as a futex in between: writes by a stream of any process
 * wake it at once, plain stores are seen at the next poll. */
#include "sg.h"
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS 64
#define YIELDS 2
#define MIN_SLEEP_NS 200000
#define MAX_SLEEP_NS 1000000
#define LONG_SLEEP_NS 1000000 /* once it has waited for LONG_WAIT_NS: many stuck queues must not eat the machine */
#define LONG_WAIT_NS 50000000

static uint64_t load(const struct sg_memop *m)
{
    return m->wide ? __atomic_load_n((uint64_t *)m->addr, __ATOMIC_ACQUIRE)
                   : __atomic_load_n((uint32_t *)m->addr, __ATOMIC_ACQUIRE);
}

bool sg_memop_satisfied(const struct sg_memop *m, uint64_t v)
{
    switch (m->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic, as documented */
        return m->wide ? (int64_t)(v - m->value) >= 0 : (int32_t)((uint32_t)v - (uint32_t)m->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return v == m->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (v & m->value) != 0;
    default:
        return m->wide ? ~(v | m->value) != 0 : (uint32_t) ~(v | m->value) != 0;
    }
}

static void futex_sleep(const struct sg_memop *m, uint64_t seen, int64_t ns)
{
    struct timespec ts = {ns / 1000000000, ns % 1000000000};
    syscall(SYS_futex, (uint32_t *)m->addr, FUTEX_WAIT, (uint32_t)seen, &ts, NULL, 0);
}

/* The memory went away under the wait, or the process exits: there is nothing left to wait for. */
static bool must_stop(struct sg_op *op, int64_t waited, int64_t *next_report)
{
    bool stop;

    sg_acquire();
    stop = sg_exiting() || (op->nranges && op->ranges[0].mem && op->ranges[0].mem->dead);
    if (stop && !sg_exiting())
        sg_misuse("%s at %#lx: the memory was released while a stream waits on it", op->what, op->u.memop.addr);
    if (!stop && (double)waited > (double)*next_report) {
        sg_report_hang_locked();
        *next_report += (int64_t)(sg_cfg.hang_seconds * 1e9);
    }
    sg_release();
    if (sg_exiting())
        for (;;)
            pause();
    return stop;
}

bool sg_wait_value(struct sg_op *op)
{
    struct sg_memop *m = &op->u.memop;
    int64_t begin = 0, sleep_ns = MIN_SLEEP_NS, next_report = (int64_t)(sg_cfg.hang_seconds * 1e9);

    for (unsigned tries = 0;; tries++) {
        uint64_t v = load(m);
        __atomic_store_n(&m->seen, v, __ATOMIC_RELAXED);
        if (sg_memop_satisfied(m, v))
            return tries > 0;
        if (tries < SPINS)
            continue;
        if (tries < SPINS + YIELDS) {
            sched_yield();
            continue;
        }
        int64_t now = sg_now();
        begin = begin ? begin : now;
        if (must_stop(op, now - begin, &next_report))
            return true;
        futex_sleep(m, v, sleep_ns);
        sleep_ns = now - begin > LONG_WAIT_NS    ? LONG_SLEEP_NS
                   : sleep_ns * 2 > MAX_SLEEP_NS ? MAX_SLEEP_NS
                                                 : sleep_ns * 2;
    }
}

static void raise_to(_Atomic uint64_t *word, uint64_t value)
{
    uint64_t now = atomic_load(word);
    while (now < value && !atomic_compare_exchange_weak(word, &now, value))
        ;
}

void sg_write_value(struct sg_op *op)
{
    struct sg_memop *m = &op->u.memop;

    if (m->raise)
        raise_to((_Atomic uint64_t *)m->addr, m->value);
    else if (m->wide)
        __atomic_store_n((uint64_t *)m->addr, m->value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)m->addr, (uint32_t)m->value, __ATOMIC_RELEASE);
    syscall(SYS_futex, (uint32_t *)m->addr, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

static const char *name_of(enum sg_op_kind kind, bool wide)
{
    if (kind == SG_OP_WAIT)
        return wide ? "cuStreamWaitValue64" : "cuStreamWaitValue32";
    return wide ? "cuStreamWriteValue64" : "cuStreamWriteValue32";
}

static CUresult make(struct sg_op **out, enum sg_op_kind kind, CUdeviceptr addr, uint64_t value, bool wide,
                     unsigned flags)
{
    unsigned known = kind == SG_OP_WAIT ? 3u | CU_STREAM_WAIT_VALUE_FLUSH : CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;

    if (flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (addr % (wide ? 8 : 4)) {
        sg_misuse("%s: address %#llx is not aligned to %d bytes", name_of(kind, wide), addr, wide ? 8 : 4);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sg_op *op = sg_op_new(kind, name_of(kind, wide));
    op->u.memop = (struct sg_memop){.addr = addr, .value = value, .flags = flags, .wide = wide};
    sg_op_range(op, addr, wide ? 8 : 4, kind == SG_OP_WRITE ? SG_RANGE_WRITE : 0);
    *out = op;
    return CUDA_SUCCESS;
}

static CUresult one(CUstream stream, enum sg_op_kind kind, CUdeviceptr addr, uint64_t value, bool wide, unsigned flags)
{
    struct sg_op *op = NULL;
    CUresult rc = make(&op, kind, addr, value, wide, flags);
    return rc ? rc : sg_submit(stream, op);
}

#define SG_MEMOP(name, type, kind, wide)                                                                               \
    static CUresult name##_on(CUstream stream, CUdeviceptr addr, type value, unsigned int flags)                       \
    {                                                                                                                  \
        return one(stream, kind, addr, value, wide, flags);                                                            \
    }                                                                                                                  \
    SG_PAIR(name, _ptsz, (CUstream stream, CUdeviceptr addr, type value, unsigned int flags),                          \
            (stream, addr, value, flags), (SG_PT(stream), addr, value, flags))

SG_MEMOP(cuStreamWaitValue32, cuuint32_t, SG_OP_WAIT, false)
SG_MEMOP(cuStreamWaitValue64, cuuint64_t, SG_OP_WAIT, true)
SG_MEMOP(cuStreamWriteValue32, cuuint32_t, SG_OP_WRITE, false)
SG_MEMOP(cuStreamWriteValue64, cuuint64_t, SG_OP_WRITE, true)
SG_MEMOP(cuStreamWaitValue32_v2, cuuint32_t, SG_OP_WAIT, false)
SG_MEMOP(cuStreamWaitValue64_v2, cuuint64_t, SG_OP_WAIT, true)
SG_MEMOP(cuStreamWriteValue32_v2, cuuint32_t, SG_OP_WRITE, false)
SG_MEMOP(cuStreamWriteValue64_v2, cuuint64_t, SG_OP_WRITE, true)

static CUresult from_params(struct sg_op **out, const CUstreamBatchMemOpParams *p)
{
    switch (p->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return make(out, SG_OP_WAIT, p->waitValue.address, p->waitValue.value, false, p->waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return make(out, SG_OP_WAIT, p->waitValue.address, p->waitValue.value64, true, p->waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return make(out, SG_OP_WRITE, p->writeValue.address, p->writeValue.value, false, p->writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return make(out, SG_OP_WRITE, p->writeValue.address, p->writeValue.value64, true, p->writeValue.flags);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
        *out = sg_op_new(SG_OP_ORDER, "cuStreamBatchMemOp barrier"); /* operations of a stream are ordered anyway */
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

#define BATCH 256

CUresult sg_memop_batch(struct sg_op **ops, unsigned count, const CUstreamBatchMemOpParams *params)
{
    CUresult rc = CUDA_SUCCESS;
    unsigned n = 0;

    while (n < count && !(rc = from_params(&ops[n], &params[n])))
        n++;
    if (rc) {
        sg_acquire();
        while (n)
            sg_op_free_locked(ops[--n]);
        sg_release();
    }
    return rc;
}

/* One node of all of them. */
static CUresult capture_locked(struct sg_stream *s, struct sg_op **ops, unsigned n)
{
    if (s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct sg_node *node = n ? sg_capture_node_locked(s, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) : NULL;
    for (unsigned i = 0; i < n; i++) {
        sg_node_op(node, ops[i]);
        ops[i] = NULL;
    }
    return CUDA_SUCCESS;
}

/* All or nothing: every operation is checked before the first one is queued. */
static CUresult batch_locked(struct sg_stream *s, struct sg_op **ops, unsigned n)
{
    CUresult rc = CUDA_SUCCESS;

    for (unsigned i = 0; i < n && !rc; i++) {
        ops[i]->ctx = s->ctx;
        ops[i]->part = i > 0;
        ops[i]->recorded = s->capture != NULL;
        rc = sg_ranges_check_locked(ops[i], false);
    }
    if (!rc && s->capture)
        return capture_locked(s, ops, n);
    for (unsigned i = 0; i < n && !rc; i++) {
        rc = sg_submit_locked(s, ops[i]);
        ops[i] = NULL;
    }
    return rc;
}

static CUresult batch(CUstream stream, unsigned count, const CUstreamBatchMemOpParams *params, unsigned flags)
{
    struct sg_op *ops[BATCH];
    CUresult rc;

    if (flags || count > BATCH || (count && !params))
        return CUDA_ERROR_INVALID_VALUE;
    if ((rc = sg_memop_batch(ops, count, params)))
        return rc;
    sg_acquire();
    struct sg_stream *s = sg_stream_enter_locked(stream, &rc);
    if (s)
        rc = batch_locked(s, ops, count);
    for (unsigned i = 0; i < count; i++)
        if (ops[i])
            sg_op_free_locked(ops[i]);
    sg_release();
    return rc;
}

static CUresult cuStreamBatchMemOp_on(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                                      unsigned int flags)
{
    return batch(stream, count, paramArray, flags);
}
SG_PAIR(cuStreamBatchMemOp, _ptsz,
        (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags),
        (stream, count, paramArray, flags), (SG_PT(stream), count, paramArray, flags))

static CUresult cuStreamBatchMemOp_v2_on(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                                         unsigned int flags)
{
    return batch(stream, count, paramArray, flags);
}
SG_PAIR(cuStreamBatchMemOp_v2, _ptsz,
        (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags),
        (stream, count, paramArray, flags), (SG_PT(stream), count, paramArray, flags))
