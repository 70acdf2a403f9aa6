/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm/watch.h"

#include <pthread.h>

const struct slr_watcher *slr_watcher[SLR_WATCHERS + 1];

void slr_watch(const struct slr_watcher *watcher)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const struct slr_watcher **at = slr_watcher;
    pthread_mutex_lock(&lock);
    while (*at && *at != watcher)
        at++;
    if (at < slr_watcher + SLR_WATCHERS)
        *at = watcher;
    pthread_mutex_unlock(&lock);
}
