/* SPDX-License-Identifier: Apache-2.0 */
/* What the cases of profile_plugin use: the tables, events as NCCL makes them, and the plugin's log. */
#ifndef TESTS_PROFILER_DRIVER_H
#define TESTS_PROFILER_DRIVER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "plugin/abi/profiler.h"

#define CHECK(ok)                                                                                                      \
    do {                                                                                                               \
        if (!(ok)) {                                                                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #ok);                                                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

extern const struct slr_profiler_v5 *v5;
extern _Atomic int logged; /* lines that went to NCCL's log */

void load(const char *library);
const void *table(const char *symbol);
void logger(enum slr_nccl_log_level level, unsigned long subsystems, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Exactly `times` lines of the log match this extended regular expression. */
void expect(const char *regex, int times);

void *comm_open(uint64_t hash, int nranks, int rank);
/* `count` bytes. */
void *op_start(void *comm, const char *func, unsigned channels, size_t count);
void *channel_start(void *comm, void *op, int channel, uint64_t gpu_ns);
void channel_stop(void *channel, uint64_t gpu_ns);
/* A call, its operation and its channels from beginning to end, as NCCL orders them. */
void op_whole(void *comm, const char *func, unsigned channels, size_t count);

void threads(void); /* cases of their own */
void cost(void);

#endif
