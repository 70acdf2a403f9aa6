/* SPDX-License-Identifier: Apache-2.0 */
/* The table of SLIPRING_TUNE_FILE. A rule is one line, for NCCL (docs/tuning.md): which algorithm, protocol and
 * channels it is to use; or for a collective's calls of a call site (docs/trials.md): which way they go.
 * The first rule that fits decides. A table is read whole or not at all.
 *
 * Nothing here knows the process's state: the parser is the tool's and the fuzzer's as well. */
#ifndef SLR_PLUGIN_TUNER_TUNE_TABLE_H
#define SLR_PLUGIN_TUNER_TUNE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/counters.h"
#include "plugin/util/consumer.h"

#define SLR_TUNE_MAX_BYTES (1u << 20) /* of a file */
#define SLR_TUNE_MAX_RULES 4096u      /* of both kinds */
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

#define SLR_TUNE_GPU 64
#define SLR_TUNE_CUT 16

struct slr_tune_site {
    int line;
    enum slr_collective_id kind; /* that it is for */
    struct slr_tune_range bytes, ranks;
    char gpu[SLR_TUNE_GPU]; /* slr_tune_gpu_word(); "": any */
    uint32_t ways;          /* SLR_WAYS_VERSION (trials/ways.h); 0: any */
    uint64_t setup;         /* what else the times depend on (trials/known.c); 0: any */
    uint64_t context;       /* the calls before it (trials/find.c); 0: any */
    struct slr_consumer consumer;
    bool nccl;
    char cut[SLR_TUNE_CUT]; /* slr_way_word(); "": by the pace */
    bool kept;              /* the library has written it (tuner.h) */
};

struct slr_tune_table {
    struct slr_tune_rule *rule;
    size_t count, room;
    struct slr_tune_site *site;
    size_t sites, site_room;
    uint64_t digest; /* of the rules for NCCL, not of comments and spaces; never 0 */
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

/* The word of a rule that stands for a GPU's name: what separates words is a dash. */
void slr_tune_gpu_word(const char *name, char word[SLR_TUNE_GPU]);

/* Whether two rules have the same conditions, so that the later one never decides. `consumers`: also
 * the same consumer. */
bool slr_tune_site_same(const struct slr_tune_site *a, const struct slr_tune_site *b, bool consumers);

/* A rule for one size and one number of ranks, with all conditions, as a line without a newline; with
 * the mark of what the library has written. Returns its length, or 0 if it does not fit. */
size_t slr_tune_site_write(const struct slr_tune_site *rule, char *buf, size_t size);

#endif
