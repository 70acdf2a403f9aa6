/* SPDX-License-Identifier: Apache-2.0 */
/* Whose tuner is it? NCCL does not say, so it is told by the thread, or by what else is being
 * made. */
#include "plugin/tuner/tuner_made.h"

static _Atomic bool hooked, loaded; /* loaded: by NCCL. Both stay true */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_tuner *alone; /* made on a thread of NCCL's; a reference each; under the lock */
static unsigned expecting;      /* communicators being made in this process; under the lock */

/* Of the communicator that this thread began to make last. */
static _Thread_local struct slr_tuner **current __attribute__((tls_model("initial-exec")));

void slr_tuner_hook_called(void)
{
    atomic_store_explicit(&hooked, true, memory_order_relaxed);
}

bool slr_tuner_hooked(void)
{
    return atomic_load_explicit(&hooked, memory_order_relaxed);
}

bool slr_tuner_any(void)
{
    return atomic_load(&loaded);
}

/* While the count is more than the caller's own, a tuner from NCCL's threads may be another's. */
void slr_tuner_expect(struct slr_tuner **slot)
{
    pthread_mutex_lock(&lock);
    expecting++;
    pthread_mutex_unlock(&lock);
    current = slot;
}

void slr_tuner_forget(struct slr_tuner **slot)
{
    if (current == slot)
        current = NULL;
    pthread_mutex_lock(&lock);
    expecting--;
    pthread_mutex_unlock(&lock);
    slr_tuner_put(*slot);
    *slot = NULL;
}

void slr_tuner_made(struct slr_tuner *tuner)
{
    slr_tuner_hold(tuner);
    atomic_store(&loaded, true);
    /* On this thread NCCL makes the communicator that the thread has announced. */
    if (current && !*current) {
        *current = tuner;
        return;
    }
    /* On a thread of its own, as in groups: it waits until it can be matched. */
    pthread_mutex_lock(&lock);
    tuner->next = alone;
    alone = tuner;
    pthread_mutex_unlock(&lock);
}

struct slr_tuner *slr_tuner_take_alone(unsigned own)
{
    struct slr_tuner *taken = NULL;
    pthread_mutex_lock(&lock);
    /* Else they stay on the list, until only one caller is left that waits for any. */
    if (expecting == own) {
        taken = alone;
        alone = NULL;
    }
    pthread_mutex_unlock(&lock);
    return taken;
}
