/* SPDX-License-Identifier: Apache-2.0 */
/* An operation of the plan in words. */
#include "plan.h"

#include <stdarg.h>
#include <string.h>

static const char *const buffer_names[BUFFERS] = {"data0", "data1", "data2",  "data3",  "data4",
                                                  "out0",  "out1",  "weight", "narrow", "factors"};

struct text {
    char *at;
    size_t room;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(t->at, t->room, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= t->room)
        return;
    t->at += n;
    t->room -= (size_t)n;
}

static void add_place(struct text *t, const char *before, struct place place)
{
    add(t, "%s%s+%zu", before, buffer_names[place.buffer], place.off);
}

static void add_call(struct text *t, const struct plan *plan, const struct op *op)
{
    static const char *const names[] = {"gather", "broadcast", "all-reduce", "reduce-scatter", "send and receive"};
    const struct call *c = &plan->calls[op->call];
    const struct team *team = &plan->team[c->comm];
    add(t, "%s%s on comm%d (rank %d of %d):", op->thrown ? "(thrown away) " : "", names[op->kind], c->comm,
        team->rank[op->rank], team->size);
    add_place(t, " ", op->from);
    add_place(t, " to ", op->to);
    add(t, ", %zu bytes, type %d", op->bytes, (int)c->type);
    if (c->kind == OP_BROADCAST)
        add(t, ", root %d", c->root);
    if (is_sum(c))
        add(t, ", operation %d", (int)c->redop);
    if (c->kind == OP_SENDRECV)
        add(t, ", %d further", c->shift);
}

static void add_data(struct text *t, const struct op *op)
{
    static const char *const sources[SOURCES] = {"noise into ", "integers into ", "8-bit floats into ", "factors into ",
                                                 "halves into "};
    switch (op->kind) {
    case OP_COPY:
        add_place(t, "copy ", op->from);
        add_place(t, " to ", op->to);
        break;
    case OP_SET:
        add_place(t, "memset ", op->to);
        add(t, " %#x", (unsigned)op->value);
        break;
    case OP_FILL:
        add_place(t, sources[op->value], op->to);
        break;
    default:
        add_place(t, "look at ", op->from);
    }
    add(t, ", %zu bytes", op->bytes);
}

static void add_gemm(struct text *t, const struct op *op)
{
    const struct gemm *g = &op->gemm;
    static const char *const form[2][2] = {{"gemm A' = ", "gemm A = "}, {"gemm B = ", "gemm B' = "}};
    add_place(t, form[g->x_is_b][g->sums], op->from);
    add(t, ", m %ld n %ld k %ld", (long)g->m, (long)g->n, (long)g->inner);
    add_place(t, g->c_bf16 ? ", bf16 C " : ", C ", op->to);
    if (g->narrow)
        add(t, ", %s by %s", g->x_e5m2 ? "e5m2" : "e4m3", g->w_e5m2 ? "e5m2" : "e4m3");
    if (g->narrow > NO_FACTORS)
        add_place(t, g->narrow == BY_ROW ? ", factors by row " : ", factor ", g->factors);
    static const char *const handles[] = {"", ", workspace set", ", workspace kept", ", stream set", ", new handle"};
    add(t, "%s", handles[g->handle]);
    if (g->scratch_bytes) {
        add_place(t, ", workspace ", g->scratch);
        add(t, " of %zu", g->scratch_bytes);
    }
}

static void add_order(struct text *t, const struct op *op)
{
    switch (op->kind) {
    case OP_GROUP_START:
        add(t, "group begins");
        return;
    case OP_GROUP_END:
        add(t, "group ends");
        return;
    case OP_RECORD:
        add(t, "record e%d", op->event);
        return;
    case OP_WAIT:
        add(t, "wait for e%d", op->event);
        return;
    case OP_QUERY:
        add(t, "query e%d and the stream", op->event);
        return;
    case OP_SYNC_EVENT:
        add(t, "host waits for e%d", op->event);
        return;
    case OP_SYNC_STREAM:
        add(t, "host waits for the stream");
        return;
    case OP_SYNC_DEVICE:
        add(t, "host waits for the device");
        return;
    case OP_HOLD:
        add(t, "rest for %d us", op->value);
        return;
    default:
        add(t, "host rests for %d ms", op->value);
    }
}

static void add_other(struct text *t, const struct op *op)
{
    static const char *const nodes[] = {"", "IF", "WHILE", "SWITCH"};
    switch (op->kind) {
    case OP_RENEW:
        add_place(t, "free and allocate ", op->to);
        return;
    case OP_CAPTURE:
        add(t, "capture begins, %s", op->value ? "thread-local" : "relaxed");
        if (op->branch.kind)
            add(t, ", of body %d of %d of %s with %d", op->branch.body, op->branch.bodies, nodes[op->branch.kind],
                op->branch.value);
        return;
    case OP_CAPTURE_END:
        add(t, "capture ends, %s, %d launches", op->value || op->call ? "instantiated" : "not instantiated", op->call);
        return;
    case OP_STOP:
        add(t, "SIGSTOP for %d ms", op->value);
        return;
    case OP_FREEZE:
        add(t, "SIGSTOP for ever");
        return;
    case OP_KILL:
        add(t, "SIGKILL");
        return;
    default:
        add_order(t, op);
    }
}

void op_text(const struct plan *plan, const struct op *op, char *text, size_t room)
{
    struct text t = {text, room};
    if (op->call >= 0 && op->kind <= OP_SENDRECV)
        add_call(&t, plan, op);
    else if (op->kind == OP_COPY || op->kind == OP_SET || op->kind == OP_FILL || op->kind == OP_LOOK)
        add_data(&t, op);
    else if (op->kind == OP_GEMM)
        add_gemm(&t, op);
    else
        add_other(&t, op);
    if (op->stream >= 0)
        add(&t, ", on s%d", op->stream);
    if (plan->two_threads)
        add(&t, ", thread %d", op->thread);
    add(&t, "%s", op->by == BY_PTSZ ? ", _ptsz" : op->by == BY_BOUND ? ", by the second library" : "");
}
