/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/captures.h"

#include <pthread.h>
#include <stdlib.h>
#include "base/status.h"
#include "base/wait.h"
#include "cache/blocks.h"

/* The driver looks for captures when a synchronisation begins. So a capture waits until those that
 * found none have begun: until they have ended, but not for ever, as what they wait for may depend
 * on the thread that captures. */
#define BEGIN_WAIT_MS 500

static _Atomic int captures; /* of the application, also those that are about to begin */
static _Atomic bool unseen;  /* others may be */
static _Atomic int syncs;    /* threads that synchronise a context, or are about to */

void slr_block_captures(int change)
{
    atomic_fetch_add(&captures, change);
    for (int ms = 0; change > 0 && ms < BEGIN_WAIT_MS && atomic_load(&syncs) > 0; ms++)
        slr_sleep_ms(1);
}

bool slr_block_capturing(void)
{
    return atomic_load(&captures) > 0;
}

/* The hooks follow captures where the driver can tell about them (interpose/graph.c). */
bool slr_nothing_captures(void)
{
    return slr_real.cuStreamGetCaptureInfo && !slr_block_capturing() && !atomic_load(&unseen);
}

void slr_captures_unseen(void)
{
    atomic_store(&unseen, true);
}

/* Under the lock. */
struct given {
    unsigned long long capture;
    struct given *next;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct given *given;
static _Atomic bool any_given, forgotten; /* there was one; one could not be kept */

void slr_capture_given(unsigned long long capture)
{
    struct given *g = malloc(sizeof *g);
    atomic_store(&any_given, true);
    if (!g) {
        atomic_store(&forgotten, true);
        return;
    }
    pthread_mutex_lock(&lock);
    *g = (struct given){capture, given};
    given = g;
    pthread_mutex_unlock(&lock);
}

/* What points to it, or to NULL. Under the lock. */
static struct given **find_given(unsigned long long capture)
{
    struct given **at = &given;
    while (*at && (*at)->capture != capture)
        at = &(*at)->next;
    return at;
}

void slr_capture_given_ends(unsigned long long capture)
{
    if (!atomic_load(&any_given))
        return;
    pthread_mutex_lock(&lock);
    struct given **at = find_given(capture), *g = *at;
    if (g)
        *at = g->next;
    pthread_mutex_unlock(&lock);
    free(g);
}

bool slr_capture_is_given(unsigned long long capture)
{
    if (!atomic_load(&any_given))
        return false;
    pthread_mutex_lock(&lock);
    const bool is = *find_given(capture) || atomic_load(&forgotten);
    pthread_mutex_unlock(&lock);
    return is;
}

bool slr_block_synchronise(CUresult *r)
{
    atomic_fetch_add(&syncs, 1);
    /* Each side announces itself before it looks for the other, so one of the two sees the other.
     */
    bool allowed = !slr_block_capturing();
    if (allowed)
        *r = slr_real.cuCtxSynchronize();
    atomic_fetch_sub(&syncs, 1);
    return allowed;
}

CUresult slr_block_driver_free(CUdeviceptr p)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    slr_swap_capture_mode(&mode);
    CUresult r = slr_real.cuMemFree(p);
    slr_swap_capture_mode(&mode);
    return r;
}
