/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/gate.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include "base/log.h"
#include "base/real.h"
#include "cache/captures.h"
#include "interpose/resolve.h"

/* In use. The row is written before the address that finds it. */
static _Atomic(void *) spare_real[SLR_GATE_SPARES];
static _Atomic unsigned spares;
extern const char slr_gate_spares[] __attribute__((visibility("hidden")));

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

/* The first row of that name, or NULL. *agree: all of them have one class, and the stream in one place. */
static const struct slr_gate_row *rows_of(const char *symbol, size_t n, bool per_thread, bool *agree)
{
    const struct slr_gate_row *first = NULL;
    bool row_per_thread;
    *agree = true;
    for (unsigned i = 0; i < SLR_GATE_COUNT; i++) {
        const struct slr_gate_row *row = &slr_gate_rows[i];
        if (strncmp(row->name, symbol, n) != 0 || base_length(row->name, &row_per_thread) != n ||
            row_per_thread != per_thread)
            continue;
        if (!first)
            first = row;
        *agree = *agree && row->class == first->class && row->arg == first->arg;
    }
    return first;
}

/* What all forms of the function agree on. Where they differ in the place of the stream, and for
 * forms that the table can not know, everything is joined. False: not gated. */
static bool row_of_base(const char *symbol, int version, bool per_thread, struct slr_gate_row *out)
{
    bool named_per_thread, agree;
    const size_t n = base_length(symbol, &named_per_thread);
    const bool wanted = per_thread || named_per_thread;
    const struct slr_gate_row *first = rows_of(symbol, n, wanted, &agree);
    if (!first && wanted) /* not every function has per-thread forms */
        first = rows_of(symbol, n, false, &agree);
    if (!first || first->class == SLR_GATE_NONE)
        return false;
    *out = *first;
    if (!agree || version > SLR_GATE_CUDA)
        out->class = SLR_GATE_ALL;
    return true;
}

/* Whether that is an older form that needs no gate, where newer ones of the same name are gated. */
static bool harmless(const char *symbol, const void *real)
{
    static const char *const names[] = {
#define H(name, why) #name,
#include "interpose/harmless.def"
    };
    bool per_thread;
    const size_t n = base_length(symbol, &per_thread);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (base_length(names[i], &per_thread) == n && memcmp(names[i], symbol, n) == 0 &&
            slr_is_drivers(names[i], real))
            return true;
    return false;
}

static void *spare_stub(unsigned i)
{
    return (void *)(slr_gate_spares + ((size_t)i << SLR_GATE_SPARE_SHIFT));
}

void *slr_gate_spare(const char *symbol, int version, int per_thread, void *real)
{
    struct slr_gate_row row;
    if (!row_of_base(symbol, version, per_thread != 0, &row) || harmless(symbol, real))
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
    /* graph.c does not announce what begins there. */
    if (strncmp(symbol, "cuStreamBeginCapture", sizeof "cuStreamBeginCapture" - 1) == 0)
        slr_captures_unseen();
    /* The address last: who finds it finds the row and the target. */
    slr_gate_spare_rows[i] = row;
    slr_gate_real[SLR_GATE_COUNT + i] = real;
    atomic_store_explicit(&spare_real[i], real, memory_order_release);
    slr_log(SLR_LOG_INFO, "gate", "symbol=%s joins=%s msg=%s", symbol, row.class == SLR_GATE_ALL ? "all" : "stream",
            "a form of the function that is not in the table");
    return spare_stub(i);
}
