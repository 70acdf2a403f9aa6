#include "interpose/gate.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include "base/log.h"
#include "base/real.h"
#include "interpose/resolve.h"
#include "plugin/pending.h"

/* Arguments are counted in machine words; a location travels in one. */
_Static_assert(sizeof(CUmemLocation) == sizeof(uint64_t), "index of the stream in cuMemPrefetchAsync_v2");

enum { WHY_OP = SLR_R_JOIN_OTHER_OP, WHY_HOST = SLR_R_JOIN_HOST_SYNC };

struct gate_row {
    const char *name;
    uint8_t class;
    uint8_t arg;
    uint8_t why;
};

static const struct gate_row rows[SLR_GATE_COUNT] = {
#define X(sym, cls, arg, why) {#sym, SLR_GATE_##cls, arg, WHY_##why},
#include "interpose/gate.def"
#undef X
};

/* Spare stubs in use: the row is written before the address that finds it. */
static struct gate_row spare_row[SLR_GATE_SPARES];
static _Atomic(void *) spare_real[SLR_GATE_SPARES];
static _Atomic unsigned spares;
extern const char slr_gate_spares[] __attribute__((visibility("hidden")));

void *slr_gate_found[SLR_GATE_COUNT];
void *slr_gate_real[SLR_GATE_COUNT + SLR_GATE_SPARES];

int slr_gate_missing(void)
{
    return CUDA_ERROR_NOT_FOUND;
}

static int no_driver(void)
{
    return CUDA_ERROR_NOT_INITIALIZED;
}

static uint64_t argument(const struct slr_gate_frame *frame, unsigned i)
{
    return i < SLR_GATE_REGS ? frame->reg[i] : frame->stack[i - SLR_GATE_REGS];
}

/* What a call that has been done in the driver's stead answers: the stub jumps to the function. */
static _Thread_local CUresult answer __attribute__((tls_model("initial-exec")));

static CUresult answered(void)
{
    return answer;
}

static bool of_thread(enum slr_gate_class class)
{
    return class == SLR_GATE_STREAM_PTSZ || class == SLR_GATE_LAUNCH_CONFIG_PTSZ || class == SLR_GATE_RECORD_PTSZ ||
           class == SLR_GATE_RECORD_FLAGS_PTSZ || class == SLR_GATE_WAIT_PTSZ || class == SLR_GATE_GRAPH_PTSZ;
}

/* The newest attribute of a launch that is known not to record an event. */
#define LAST_ATTRIBUTE CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING

/* Whether the launch records an event of the application beside its stream, or may, by an attribute that is newer than
 * this file. */
static bool launch_records(const CUlaunchConfig *config)
{
    for (unsigned i = 0; config && config->attrs && i < config->numAttrs; i++) {
        CUlaunchAttributeID id = config->attrs[i].id;
        if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT || id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT ||
            id > LAST_ATTRIBUTE)
            return true;
    }
    return false;
}

/* Returns true when there is nothing left for the driver to do. */
static bool join(const struct gate_row *row, const struct slr_gate_frame *frame)
{
    enum slr_gate_class class = row->class;
    uint64_t arg = argument(frame, row->arg);
    const CUlaunchConfig *config = (const CUlaunchConfig *)(uintptr_t)arg;
    CUstream stream = (CUstream)(uintptr_t)arg;
    bool per_thread = of_thread(class), flags = class == SLR_GATE_RECORD_FLAGS || class == SLR_GATE_RECORD_FLAGS_PTSZ;

    switch (class) {
    case SLR_GATE_RECORD:
    case SLR_GATE_RECORD_PTSZ:
    case SLR_GATE_RECORD_FLAGS:
    case SLR_GATE_RECORD_FLAGS_PTSZ:
        return slr_pending_record((CUevent)(uintptr_t)argument(frame, 0), stream, per_thread,
                                  flags ? (unsigned)argument(frame, 2) : 0, row->name, &answer);
    case SLR_GATE_WAIT:
    case SLR_GATE_WAIT_PTSZ:
        return slr_pending_wait(stream, (CUevent)(uintptr_t)argument(frame, 1), per_thread,
                                (unsigned)argument(frame, 2), row->name, &answer);
    case SLR_GATE_EVENT_END:
        slr_pending_event_end((CUevent)(uintptr_t)arg);
        return false;
    case SLR_GATE_LAUNCH_CONFIG:
    case SLR_GATE_LAUNCH_CONFIG_PTSZ:
        if (!config) /* the driver refuses it: nothing is launched */
            return false;
        if (launch_records(config))
            slr_pending_events_unseen();
        stream = config->hStream;
        break;
    case SLR_GATE_GRAPH:
    case SLR_GATE_GRAPH_PTSZ:
        slr_pending_events_unseen();
        break;
    case SLR_GATE_LEGACY:
    case SLR_GATE_ALL:
        slr_pending_join_all(row->why, row->name);
        return false;
    case SLR_GATE_NONE:
        return false;
    case SLR_GATE_STREAM:
    case SLR_GATE_STREAM_PTSZ:
        break;
    }
    slr_pending_join_stream(stream, per_thread, row->why, row->name);
    return false;
}

/* What slipring or a vendor's function that it called does joins nothing; but it can record an event that carries. */
static void note_own(const struct gate_row *row, const struct slr_gate_frame *frame)
{
    enum slr_gate_class class = row->class;
    bool records = class >= SLR_GATE_RECORD && class <= SLR_GATE_GRAPH_PTSZ && class != SLR_GATE_WAIT &&
                   class != SLR_GATE_WAIT_PTSZ;
    if (class == SLR_GATE_LAUNCH_CONFIG || class == SLR_GATE_LAUNCH_CONFIG_PTSZ)
        records = launch_records((const CUlaunchConfig *)(uintptr_t)argument(frame, row->arg));
    if (records)
        slr_pending_events_unseen();
}

void *slr_gate_slow(unsigned index, const struct slr_gate_frame *frame)
{
    int saved = errno;
    unsigned word = atomic_load_explicit(&slr_gate_word, memory_order_acquire);
    bool done = false;
    if (!slr_find_cuda()) {
        errno = saved;
        return (void *)no_driver;
    }
    if ((word & ~SLR_GATE_UNRESOLVED) != 0) {
        const struct gate_row *row = index < SLR_GATE_COUNT ? &rows[index] : &spare_row[index - SLR_GATE_COUNT];
        if (slr_guard == 0) {
            slr_guard++;
            done = join(row, frame);
            slr_guard--;
        } else {
            note_own(row, frame);
        }
    }
    errno = saved;
    return done ? (void *)answered : slr_gate_real[index];
}

static bool digits(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] < '0' || s[i] > '9')
            return false;
    return n > 0;
}

/* Length of the name without its version and stream form: cuMemcpyHtoD of cuMemcpyHtoD_v2_ptds. */
static size_t base_length(const char *name, bool *per_thread)
{
    size_t n = strlen(name);
    *per_thread = n > 5 && (memcmp(name + n - 5, "_ptsz", 5) == 0 || memcmp(name + n - 5, "_ptds", 5) == 0);
    if (*per_thread)
        n -= 5;
    for (size_t i = n; i > 1; i--)
        if (name[i - 1] == 'v' && name[i - 2] == '_' && digits(name + i, n - i))
            return i - 2;
    return n;
}

/* What all forms of the function agree on. Where they differ in the place of the stream, and for forms that the table
 * can not know, everything is joined. False: not gated. */
static bool row_of_base(const char *symbol, int version, bool per_thread, struct gate_row *out)
{
    const struct gate_row *first = NULL;
    bool named_per_thread, row_per_thread, agree = true;
    size_t n = base_length(symbol, &named_per_thread);
    for (int pass = 0; pass < 2 && !first; pass++) { /* not every function has per-thread forms */
        bool wanted = pass == 0 && (per_thread || named_per_thread);
        for (unsigned i = 0; i < SLR_GATE_COUNT; i++) {
            const struct gate_row *row = &rows[i];
            if (base_length(row->name, &row_per_thread) != n || row_per_thread != wanted ||
                memcmp(row->name, symbol, n) != 0)
                continue;
            if (!first)
                first = row;
            agree = agree && row->class == first->class && row->arg == first->arg;
        }
    }
    if (!first || first->class == SLR_GATE_NONE)
        return false;
    *out = *first;
    if (!agree || version > CUDA_VERSION)
        out->class = SLR_GATE_ALL;
    return true;
}

static void *spare_stub(unsigned i)
{
    return (void *)(slr_gate_spares + ((size_t)i << SLR_GATE_SPARE_SHIFT));
}

void *slr_gate_spare(const char *symbol, int version, int per_thread, void *real)
{
    struct gate_row row;
    if (!row_of_base(symbol, version, per_thread != 0, &row))
        return NULL;
    for (unsigned i = 0; i < SLR_GATE_SPARES; i++)
        if (atomic_load_explicit(&spare_real[i], memory_order_acquire) == real)
            return spare_stub(i);
    unsigned i = atomic_fetch_add(&spares, 1);
    if (i >= SLR_GATE_SPARES) {
        atomic_store(&spares, SLR_GATE_SPARES);
        slr_log(SLR_LOG_ERROR, "gate", "symbol=%s msg=%s", symbol,
                "more unknown forms of driver functions than can be followed; set SLIPRING_ENABLE=off and report this");
        return NULL;
    }
    spare_row[i] = row;
    slr_gate_real[SLR_GATE_COUNT + i] = real;
    atomic_store_explicit(&spare_real[i], real, memory_order_release);
    slr_log(SLR_LOG_INFO, "gate", "symbol=%s joins=%s msg=%s", symbol, row.class == SLR_GATE_ALL ? "all" : "stream",
            "a form of the function that is not in the table");
    return spare_stub(i);
}
