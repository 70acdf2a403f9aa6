/* SPDX-License-Identifier: Apache-2.0 */
/* slipring tune: what was measured, what is best, and the table of it. */
#ifndef SLR_TOOLS_TUNE_H
#define SLR_TOOLS_TUNE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "plugin/tuner/tune_table.h"

/* One measured call of one rank: an "explored" line of the log (plugin/tuner/tuner.h). */
struct sample {
    int func, size_class, registered, nranks, nnodes; /* the key: what a rule can tell apart */
    int algo, proto, channels;                        /* the candidate; -1, -1, 0: NCCL's default */
    int candidates;                                   /* how many took turns */
    unsigned call;                                    /* of those of its key, on its communicator, from 0 */
    uint64_t comm, rank;                              /* which communicator, and which of its ranks */
    uint64_t ns;
};

struct samples {
    struct sample *at;
    size_t n, room; /* as VEC of tools/common/vec.h */
    size_t bad_lines;
    char nccl[32], device[96]; /* "" unknown */
    char trouble[320];         /* the first warning about tuning in the logs, "" none */
};

/* Takes what a line of the log says; for tools/log/log_tail.h. */
void samples_take(void *samples, const json_t *line);

/* What the second run said of a choice that was better in the first. */
enum trial {
    NOT_TRIED,
    CONFIRMED,
    REFUTED,
    TOO_FEW,   /* samples of the choice or of the default */
    ELSEWHERE, /* not tried: ranks on other hosts might not find the table that was measured, and NCCL would hang */
};

/* One key and what was found. */
struct finding {
    int func, size_class, registered, nranks, nnodes;
    int algo, proto, channels;    /* the best of the first run */
    uint64_t default_ns, best_ns; /* median of the slowest rank; of the second run for what was tried there */
    size_t samples;               /* of the default, on the rank that has fewest; of both in the second run */
    size_t calls;                 /* measured in the first run, all ranks together */
    size_t made, needed;          /* calls of the communicator that made fewest in the first run, up to those asked for;
                                     calls that LEAST_SAMPLES of each candidate take */
    bool enough;                  /* false: too few samples of the default */
    bool better;                  /* than the default, by the wanted gain, and not refuted: becomes a rule */
    bool complete;                /* every rank of every communicator has left samples */
    enum trial trial;
};

/* Exit status: COMMAND has run, and no kind of call came often enough. */
#define TUNE_TOO_FEW 3

/* Least samples of a candidate on each rank for it to count. */
#define LEAST_SAMPLES 3u

/* All keys, ordered. The list is to be freed. NULL with *count 0: nothing, or no memory. `gain` in
 * percent. */
struct finding *findings_make(struct samples *s, double gain, size_t *count);

/* Before the second run: of those that are better, which it is to try. Sets ELSEWHERE. The number
 * of those to try; with `tried` (room for `count`), copies of all in which no other is better, to
 * make a table of. */
size_t findings_to_try(struct finding *f, size_t count, struct finding *tried);

/* What the samples of the second run say of those; those that it does not confirm are not better
 * any more. */
void findings_confirm(struct finding *f, size_t count, struct samples *second, double gain);

/* Whether there were enough calls in the first run to say that a choice is better than the default,
 * or that none is. */
bool finding_told(const struct finding *f);

void findings_print(const struct finding *f, size_t count, FILE *out);
/* Those that are not told: how many calls there were, and how many are needed. */
void findings_print_few(const struct finding *f, size_t count, FILE *out);

/* What the head of a table says, and its end. */
struct table_head {
    const char *nccl, *device, *command, *runs;
    double gain;
    struct slr_tune_table sites; /* its rules for call sites go into the table, too */
};
/* Writes a table, whole or not at all. 0 or -errno; *rules: how many. */
int table_write(const char *path, const struct table_head *head, const struct finding *f, size_t count, size_t *rules);

#endif
