/* SPDX-License-Identifier: Apache-2.0 */
#include "play.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <unistd.h>

/* The sanitizers do not stand it: there the library calls what everybody calls. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BIND 0
#else
#define BIND RTLD_DEEPBIND
#endif

static const struct way *bound;

/* It lies beside the program. */
static void open_bound(void)
{
    char self[PATH_MAX], path[PATH_MAX + 32];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(n > 0, "the program's path is not known");
    self[n] = 0;
    snprintf(path, sizeof path, "%s/libfuzz_bound.so", dirname(self));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | BIND);
    CHECK(library, "%s", dlerror());
    bound = dlsym(library, "way_bound");
    CHECK(bound, "%s", dlerror());
}

const struct way *player_way(const struct op *op)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (op->by != BY_BOUND)
        return op->by == BY_PTSZ ? &way_ptsz : &way_runtime;
    CHECK(pthread_once(&once, open_bound) == 0, "no library");
    return bound;
}

const struct way *player_second(void)
{
    return bound;
}

cudaStream_t player_stream(const struct player *p, const struct op *op)
{
    const bool own = p->plan->two_threads && op->stream < 2;
    return op->stream < 0 || (own && op->by == BY_PTSZ) ? NULL : p->stream[op->stream];
}

/* Before its first GEMM, and whenever the plan says so. */
cublasHandle_t player_handle(struct player *p, const struct op *op)
{
    const struct gemm *g = &op->gemm;
    cublasHandle_t *handle = g->handle ? &p->worker : &p->blas;
    if (g->handle == HANDLE_NEW) {
        BLAS(cublasDestroy(*handle));
        BLAS(cublasCreate(handle));
    }
    if (g->handle != HANDLE_KEEPS)
        BLAS(cublasSetStream(*handle, p->stream[op->stream]));
    if (g->handle == HANDLE_SETS)
        BLAS(cublasSetWorkspace(*handle, p->buffer[g->scratch.buffer] + g->scratch.off, g->scratch_bytes));
    return *handle;
}
