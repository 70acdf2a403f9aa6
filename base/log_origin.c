/* SPDX-License-Identifier: Apache-2.0 */
/* Who writes: the host and the rank that stand in each line. */
#include <stdatomic.h>
#include <stdlib.h>
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

/* Job starters tell each process its rank long before there is a communicator. */
const char *slr_log_starter_rank(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        size_t len = value ? strspn(value, "0123456789") : 0;
        if (len > 0 && value[len] == '\0')
            return value;
    }
    return NULL;
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
