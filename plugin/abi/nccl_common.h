/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL's plugin interfaces have in common: the logger that NCCL hands to a plugin, and its names of collectives.
 *
 * NCCL does not install a header for these; the values are those of NCCL 2.18 to 2.30 (`ncclDebugLogger_t`,
 * `ncclFunc_t`, NCCL_LOG_* and the subsystem bits in its src/include/nccl_common.h). The result type is nccl.h's. Names
 * and order of the fields in the headers of this folder are the binary interface; our names of types begin with slr_.
 */
#ifndef SLR_PLUGIN_ABI_NCCL_COMMON_H
#define SLR_PLUGIN_ABI_NCCL_COMMON_H

#include <nccl.h>
#include <stddef.h>
#include <stdint.h>

/* Levels and subsystems of NCCL_DEBUG and NCCL_DEBUG_SUBSYS. */
enum slr_nccl_log_level {
    SLR_NCCL_LOG_NONE = 0,
    SLR_NCCL_LOG_VERSION = 1,
    SLR_NCCL_LOG_WARN = 2,
    SLR_NCCL_LOG_INFO = 3,
    SLR_NCCL_LOG_ABORT = 4,
    SLR_NCCL_LOG_TRACE = 5
};
#define SLR_NCCL_SUBSYS_INIT 0x1ul
#define SLR_NCCL_SUBSYS_COLL 0x2ul
#define SLR_NCCL_SUBSYS_TUNING 0x40ul
#define SLR_NCCL_SUBSYS_ENV 0x80ul
#define SLR_NCCL_SUBSYS_PROFILE 0x4000ul

/* `level` is NCCL's enum, passed as int is. `file` and `line` say where the line comes from; no line feed in `fmt`. */
typedef void (*slr_nccl_logger)(enum slr_nccl_log_level level, unsigned long subsystems, const char *file, int line,
                                const char *fmt, ...) __attribute__((format(printf, 5, 6)));
_Static_assert(sizeof(enum slr_nccl_log_level) == sizeof(int), "passed in an int's place");

/* Collectives. The first five have a cost table and are given to tuners; the others are seen by profilers only. */
enum slr_nccl_func {
    SLR_NCCL_BROADCAST = 0,
    SLR_NCCL_REDUCE = 1,
    SLR_NCCL_ALL_GATHER = 2,
    SLR_NCCL_REDUCE_SCATTER = 3,
    SLR_NCCL_ALL_REDUCE = 4,
    SLR_NCCL_SEND_RECV = 5,
    SLR_NCCL_SEND = 6,
    SLR_NCCL_RECV = 7,
    SLR_NCCL_ALL_TO_ALL = 8, /* from here on: 2.28 */
    SLR_NCCL_SCATTER = 9,
    SLR_NCCL_GATHER = 10,
    SLR_NCCL_PUT_SIGNAL = 11, /* 2.29; NCCL names these to profilers, the numbers are our own */
    SLR_NCCL_SIGNAL = 12,
    SLR_NCCL_WAIT_SIGNAL = 13
};
#define SLR_NCCL_TUNED_FUNCS 5
#define SLR_NCCL_FUNCS 14
_Static_assert(sizeof(enum slr_nccl_func) == sizeof(int), "passed in an int's place");

/* Algorithms and protocols, as numbers in cost tables. NCCL writes them "Tree" and "LL128"; NCCL_ALGO and NCCL_PROTO
 * take the same words. 2.19 knows the first six algorithms, 2.24 all seven. */
enum slr_nccl_algo {
    SLR_NCCL_TREE = 0,
    SLR_NCCL_RING = 1,
    SLR_NCCL_COLLNET_DIRECT = 2,
    SLR_NCCL_COLLNET_CHAIN = 3,
    SLR_NCCL_NVLS = 4,
    SLR_NCCL_NVLS_TREE = 5,
    SLR_NCCL_PAT = 6,
    SLR_NCCL_ALGOS = 7
};
enum slr_nccl_proto { SLR_NCCL_LL = 0, SLR_NCCL_LL128 = 1, SLR_NCCL_SIMPLE = 2, SLR_NCCL_PROTOS = 3 };

#define SLR_NCCL_MAX_CHANNELS 64 /* MAXCHANNELS in all these versions */

/* ---- names: tune files, log lines ---- */

/* As NCCL writes them; "default" for -1, "?" for a number that is none. */
const char *slr_tune_func_name(int func);
const char *slr_tune_algo_name(int algo);
const char *slr_tune_proto_name(int proto);

/* The number of a name in any letter case, -1 for "default" ("any" for collectives), -2 for none.
 * Collectives: those that tuners are asked about. */
int slr_tune_func_number(const char *name, size_t len);
int slr_tune_algo_number(const char *name, size_t len);
int slr_tune_proto_number(const char *name, size_t len);

/* As logs name them, and bytes of an element; "?" and 0 for an unknown one. */
const char *slr_type_name(ncclDataType_t type);
size_t slr_type_bytes(ncclDataType_t type);

#endif
