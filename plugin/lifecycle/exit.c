/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the process, and a process that has forked. */
#include "base/counters.h"
#include "base/log.h"
#include "base/settings.h"
#include "cache/blocks.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/lane.h"
#include "plugin/connect/connect.h"
#include "plugin/hosts/shadow.h"
#include "plugin/lifecycle/lifecycle_impl.h"
#include "plugin/lifecycle/lifecycle.h"
#include "plugin/memory/exports.h"
#include "plugin/places/places.h"
#include "plugin/trials/trials.h"
#include "plugin/tuner/tuner.h"
#include "plugin/util/process.h"

/* Peers may still be copying out of this process's staging memory when it is done itself. They need
 * milliseconds; a peer that does not move for this long is not waited for. */
#define EXIT_WAIT_MS 3000

void slr_plugin_after_fork_child(void)
{
    slr_settings_off(); /* also those of its functions that NCCL calls */
    slr_oob_after_fork();
}

static void tell_end(struct slr_comm *c, void *ctx)
{
    (void)ctx;
    slr_connect_tell_held(c);
    slr_places_end(c);
}

/* Of the communicators that the program leaves to the end of the process, as JAX does. */
static void tell_trials(void)
{
    static struct slr_comm *comms[SLR_MANY_COMMS];
    const int n = slr_comm_hold_all(comms, SLR_MANY_COMMS);
    for (int i = 0; i < n; i++) {
        if (slr_lane_trylock(comms[i]->lane)) { /* another thread may hold it, in a call that does not come back */
            slr_trials_tell(comms[i]);
            slr_lane_unlock(comms[i]->lane);
        }
        slr_comm_put(comms[i]);
    }
}

void slr_plugin_at_exit(void)
{
    if (slr_process_off())
        return;
    slr_deferred_before_exit(EXIT_WAIT_MS); /* with the threads still at work: peers ask them for descriptors */
    slr_inits_stop();
    slr_shadows_stop();
    slr_threads_stop();
    slr_tune_keep_end();
    tell_trials();
    slr_comm_each(tell_end, NULL);
    slr_counters_log();
    slr_block_log_stats();
    slr_closing_say();
    slr_log_tell_lost();
}
