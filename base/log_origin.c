/* SPDX-License-Identifier: Apache-2.0 */
/* Who writes: the host and the rank that stand in each line. */
#include <stdatomic.h>
#include <string.h>
#include <sys/utsname.h>
#include "base/log_internal.h"

static _Atomic int log_rank = -1;

int slr_log_rank(void)
{
    return atomic_load_explicit(&log_rank, memory_order_relaxed);
}

void slr_log_set_rank(int rank)
{
    int none = -1;
    if (rank >= 0)
        atomic_compare_exchange_strong(&log_rank, &none, rank);
}

const char *slr_log_host(char *buf, size_t size)
{
    struct utsname name;
    const char *host = uname(&name) == 0 && name.nodename[0] ? name.nodename : "localhost";
    size_t len = strlen(host);
    len = len < size ? len : size - 1;
    memcpy(buf, host, len);
    buf[len] = '\0';
    return buf;
}
