/* SPDX-License-Identifier: Apache-2.0 */
/* Hardware queues: the connections of CUDA_DEVICE_MAX_CONNECTIONS, so many in each context. What streams are given goes
 * through one of them in the order of the calls: an operation begins when all before it there have begun, and a wait
 * has begun when it is satisfied. So a stream that is held holds those that share its queue, but not what came before.
 *
 * Which queue a stream gets is not documented. On H200 most streams went on until as many were held as there are queues,
 * of many more that were alive: so a stream has no fixed queue. Here one that has nothing to do gets, with its next
 * operation, the queue that the fewest streams use. */
#include "sg.h"

static struct sg_connection *least_used_locked(struct sg_ctx *ctx)
{
    struct sg_connection *best = &ctx->connections[0];

    for (unsigned i = 1; i < sg_cfg.connections; i++)
        if (ctx->connections[i].streams < best->streams)
            best = &ctx->connections[i];
    return best;
}

void sg_connection_enter_locked(struct sg_stream *s, struct sg_op *op)
{
    if (s->aside || op->aside)
        return;
    if (!s->connection) {
        s->connection = least_used_locked(s->ctx);
        s->connection->streams++;
    }
    struct sg_connection *c = op->connection = s->connection;
    if (c->last)
        c->last->behind = op;
    else
        c->first = op;
    c->last = op;
}

int64_t sg_connection_turn_locked(struct sg_stream *s, const struct sg_op *op)
{
    if (!op->connection)
        return 0;
    while (op->connection->first != op) /* whoever is first reports a hang */
        pthread_cond_wait(&s->cv, &sg_lock);
    return op->connection->t;
}

void sg_connection_begun_locked(struct sg_op *op, int64_t t)
{
    struct sg_connection *c = op->connection;

    if (!c)
        return;
    op->connection = NULL;
    c->t = t;
    c->first = op->behind;
    if (c->first)
        pthread_cond_signal(&c->first->fence->stream->cv);
    else
        c->last = NULL;
}

void sg_connection_idle_locked(struct sg_stream *s)
{
    if (s->connection)
        s->connection->streams--;
    s->connection = NULL;
}
