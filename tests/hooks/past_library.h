/* SPDX-License-Identifier: Apache-2.0 */
/* What past.c asks of the library that it opens. */
#ifndef TESTS_CALLERS_PAST_LIBRARY_H
#define TESTS_CALLERS_PAST_LIBRARY_H

#include <cuda.h>
#include <stddef.h>

/* Each returns what the driver answers. */
struct past_calls {
    CUresult (*read)(void *host, CUdeviceptr at, size_t bytes, CUstream stream); /* and waits for the stream */
    CUresult (*release)(CUdeviceptr at);
    CUresult (*end)(CUstream stream);
    CUresult (*allocate)(CUdeviceptr *at, size_t bytes);
    CUresult (*copy)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
    CUresult (*capture)(CUstream stream);
    CUresult (*launch)(CUstream stream); /* what it has captured, once */
    CUresult (*run)(CUgraphExec graph, CUstream stream);
};

/* The program's: what the library's constructor is to read, where `host` is not NULL. */
struct past_order {
    void *host;
    CUdeviceptr at;
    size_t bytes;
    CUstream stream;
    CUresult result;
};

#endif
