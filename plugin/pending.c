#include "plugin/pending_impl.h"

#include <pthread.h>
#include "base/cu.h"
#include "base/counters.h"
#include "base/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_comm *list;

void slr_pending_lock(void)
{
    pthread_mutex_lock(&lock);
}

void slr_pending_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

struct slr_comm *slr_pending_first(void)
{
    return list;
}

bool slr_stream_is_legacy(CUstream s)
{
    return s == NULL || s == CU_STREAM_LEGACY;
}

void slr_pending_add(struct slr_comm *c)
{
    c->pending.active = true;
    c->pending.next = list;
    list = c;
    atomic_fetch_add(&slr_gate_word, 1);
}

void slr_pending_remove(struct slr_comm *c)
{
    struct slr_comm **at = &list;
    while (*at != c)
        at = &(*at)->pending.next;
    *at = c->pending.next;
    c->pending.active = false;
    atomic_fetch_sub(&slr_gate_word, 1);
}

static void log_join(const struct slr_comm *c, enum slr_reason why, const char *who)
{
    uint64_t key = slr_mix(slr_mix((uint64_t)why, c->pending.gather.plan.shard), slr_comm_id(c) ^ 1);
    if (slr_log_enabled(SLR_LOG_INFO) && slr_log_first(key))
        slr_log(SLR_LOG_INFO, "joined", "comm=%s crank=%d shard=%zu reason=%s by=%s", c->name, c->rank,
                c->pending.gather.plan.shard, slr_reason_name(why), who);
}

void slr_pending_join(struct slr_comm *c, enum slr_reason why, const char *who)
{
    if (!c->pending.active)
        return;
    enum slr_status s = slr_shared_enter(&c->shared);
    if (s == SLR_OK) {
        s = slr_ring_join(&c->ring, c->pending.gather.stream);
        slr_shared_leave();
    }
    if (s != SLR_OK)
        slr_comm_fail(c, s, -1, "the application's stream could not be joined with the ring");
    slr_count(why);
    log_join(c, why, who);
    slr_pending_remove(c);
}

/* Whether an operation on `stream` could observe the gather of `c`. A default stream synchronises with the blocking
 * streams, and we do not know which those are. */
static bool observes(const struct slr_comm *c, CUstream stream, bool default_stream)
{
    CUstream own = c->pending.gather.stream;
    return default_stream || own == stream || slr_stream_is_legacy(own);
}

void slr_pending_join_stream(CUstream stream, bool per_thread, enum slr_reason why, const char *who)
{
    bool is_default = slr_stream_is_legacy(stream) || stream == CU_STREAM_PER_THREAD;
    (void)per_thread; /* 0 is a default stream either way; both are treated alike */
    slr_guard++;
    slr_pending_lock();
    for (struct slr_comm *c = list, *next; c; c = next) {
        next = c->pending.next;
        if (observes(c, stream, is_default))
            slr_pending_join(c, why, who);
    }
    slr_pending_unlock();
    slr_guard--;
}

void slr_pending_join_all(enum slr_reason why, const char *who)
{
    slr_guard++;
    slr_pending_lock();
    while (list)
        slr_pending_join(list, why, who);
    slr_pending_unlock();
    slr_guard--;
}
