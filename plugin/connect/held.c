/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank holds for a communicator: for the log, at its end. */
#include "base/log.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/connect/connect.h"

struct some {
    unsigned count;
    uint64_t bytes;
};

/* Blocks of the peer that this rank has mapped: what it has acknowledged stays as it is. */
static void add_mapped(const struct slr_comm *c, int owner, struct some *sum)
{
    const struct slr_control *control = c->shared.control;
    for (int i = 0; i < SLR_EXPORTS; i++) {
        const uint64_t ack = atomic_load(&control->post[c->rank].ack[owner][i]);
        if (!ack || (ack & (SLR_ACK_OPENING | SLR_ACK_REFUSED)))
            continue;
        sum->count++;
        sum->bytes += control->post[owner].exports[i].export.size;
    }
}

/* Those of its own that it offers. */
static struct some offered(const struct slr_comm *c)
{
    const struct slr_exported *e = c->shared.control->post[c->rank].exports;
    struct some sum = {0};
    for (int i = 0; i < SLR_EXPORTS; i++)
        if (atomic_load(&e[i].state) != SLR_EXPORTED_EMPTY) {
            sum.count++;
            sum.bytes += e[i].export.size;
        }
    return sum;
}

uint64_t slr_connect_held(const struct slr_comm *c)
{
    uint64_t bytes = 0;
    for (unsigned k = 0; k < SLR_SLOT_CLASSES; k++)
        bytes += atomic_load(&c->link->of[k].staging);
    return bytes;
}

void slr_connect_tell_held(const struct slr_comm *c)
{
    struct some mapped = {0};
    if (!c->shared.control || !atomic_load(&c->link->once) || !slr_log_enabled(SLR_LOG_INFO))
        return;
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            add_mapped(c, r, &mapped);
    const struct some own = offered(c);
    slr_log(SLR_LOG_INFO, "held",
            "comm=%s crank=%d staging_bytes=%llu mapped=%u mapped_bytes=%llu exported=%u exported_bytes=%llu", c->name,
            c->rank, (unsigned long long)slr_connect_held(c), mapped.count, (unsigned long long)mapped.bytes, own.count,
            (unsigned long long)own.bytes);
}
