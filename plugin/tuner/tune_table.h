/* SPDX-License-Identifier: Apache-2.0 */
/* The table of SLIPRING_TUNE_FILE (docs/tuning.md has the format): which algorithm, protocol and
 * channels NCCL is to use. A rule is one line:
 *
 *   COLLECTIVE [bytes=R] [ranks=R] [nodes=R] [registered=yes|no|any] :
 *       [algorithm=A] [protocol=P] [channels=N]
 *
 * where R is N, LOW..HIGH, LOW.., ..HIGH or any. The first rule that fits decides. A table is read
 * whole or not at all.
 *
 * Nothing here knows the process's state: the parser is the tool's and the fuzzer's as well. */
#ifndef SLR_PLUGIN_TUNER_TUNE_TABLE_H
#define SLR_PLUGIN_TUNER_TUNE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLR_TUNE_MAX_BYTES (1u << 20) /* of a file */
#define SLR_TUNE_MAX_RULES 4096u
#define SLR_TUNE_MAX_LINE 1024u

struct slr_tune_range {
    uint64_t low, high; /* both inclusive */
};

struct slr_tune_rule {
    int line;
    int func;       /* enum slr_nccl_func, -1: any */
    int registered; /* 0, 1, -1: any */
    struct slr_tune_range bytes, ranks, nodes;
    int algo, proto; /* -1: NCCL's choice */
    int channels;    /* 0: NCCL's choice */
};

struct slr_tune_table {
    struct slr_tune_rule *rule;
    size_t count, room;
    uint64_t digest; /* of the rules, not of comments and spaces; never 0 */
};

struct slr_tune_error {
    int line; /* from 1; 0: the file as a whole */
    char text[320];
};

/* Each gives 0, or a negative errno value with `error` filled and the table empty. */
int slr_tune_parse(struct slr_tune_table *table, const char *text, size_t len, struct slr_tune_error *error);
int slr_tune_load(struct slr_tune_table *table, const char *path, struct slr_tune_error *error);
void slr_tune_free(struct slr_tune_table *table);

/* What a rule is looked up by. `bytes` as NCCL counts: the larger of the send and the receive side,
 * so of an all-gather what all ranks gather together. */
struct slr_tune_call {
    int func;
    size_t bytes, ranks, nodes;
    bool registered;
};
const struct slr_tune_rule *slr_tune_find(const struct slr_tune_table *table, const struct slr_tune_call *call);

#endif
