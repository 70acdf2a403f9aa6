/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank is, and what has failed there. */
#include "ag_rank.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

void ag_enter(struct ag_rank *r, enum ag_phase phase, long iteration)
{
    atomic_store(&r->record->phase, (int)phase);
    atomic_store(&r->record->iteration, iteration);
    if (r->rank != r->options->kill_rank)
        return;
    const char *where = r->options->kill_at, *colon = strchr(where, ':'), *name = ag_phase_name((int)phase);
    const size_t length = colon ? (size_t)(colon - where) : strlen(where);
    if (strlen(name) == length && strncmp(name, where, length) == 0 && iteration == (colon ? atol(colon + 1) : 0))
        raise(SIGKILL);
}

int ag_failed(struct ag_rank *r, const char *call, const char *error, const char *text)
{
    struct ag_record *record = r->record;
    const int words = (int)strcspn(call, "(");
    if (record->error[0])
        return -1;
    snprintf(record->error, sizeof(record->error), "%.*s in %s, iteration %ld: %s: %s", words, call,
             ag_phase_name(record->phase), (long)record->iteration, error, text);
    fprintf(stderr, "ag_gemm: rank %d: %s\n", r->rank, record->error);
    return -1;
}

const char *ag_blas_error(cublasStatus_t status)
{
    switch (status) {
#define CASE(name)                                                                                                     \
    case name:                                                                                                         \
        return #name
        CASE(CUBLAS_STATUS_NOT_INITIALIZED);
        CASE(CUBLAS_STATUS_ALLOC_FAILED);
        CASE(CUBLAS_STATUS_INVALID_VALUE);
        CASE(CUBLAS_STATUS_ARCH_MISMATCH);
        CASE(CUBLAS_STATUS_MAPPING_ERROR);
        CASE(CUBLAS_STATUS_EXECUTION_FAILED);
        CASE(CUBLAS_STATUS_INTERNAL_ERROR);
        CASE(CUBLAS_STATUS_NOT_SUPPORTED);
#undef CASE
    default:
        return "unknown status";
    }
}
