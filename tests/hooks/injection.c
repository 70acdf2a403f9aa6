/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver loads within cuInit (CUDA_INJECTION64_PATH), as profilers are: it calls cuInit. MEANWHILE says what another
 * thread does with the variables before that; connections.c looks at what has become of them. */
#include <cuda.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void *change(void *what)
{
    static int failed;
    if (!strcmp(what, "set"))
        failed = setenv("NEW", "1", 1);
    else if (!strcmp(what, "take"))
        failed = unsetenv("OLD");
    else
        failed = setenv("OLD", "changed", 1);
    return failed ? &failed : NULL;
}

int InitializeInjection(void);
int InitializeInjection(void)
{
    char *what = getenv("MEANWHILE");
    pthread_t thread;
    void *failed = NULL;
    if (what && (pthread_create(&thread, NULL, change, what) || pthread_join(thread, &failed) || failed))
        abort();
    return cuInit(0) == CUDA_SUCCESS;
}
