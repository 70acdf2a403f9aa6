/* SPDX-License-Identifier: Apache-2.0 */
/* slipring top: what running jobs do. The control blocks of their communicators (plugin/comm/control.h) are found in
 * /proc and mapped to be read; nothing is written to them, nor sent to the processes. */
#ifndef SLR_TOOLS_TOP_H
#define SLR_TOOLS_TOP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include "plugin/comm/control.h"
#include "tools/common/vec.h"

/* A process of this user in which the library is, or that holds a control block. */
struct top_process {
    pid_t pid, inner; /* here, and in its own namespace, as posts have it */
    char state;       /* as in /proc/PID/stat */
    char *name;
    bool asked; /* one of those that the user has named */
    bool holds; /* a control block */
    /* Of a rank: in the communicator that has the most. */
    int rank, nranks; /* nranks 0: it is none */
    struct slr_shown shown;
};

/* A control block. */
struct top_block {
    dev_t dev;
    ino_t ino;
    struct slr_control *control; /* read-only; NULL: `problem` says why not */
    size_t bytes;
    const char *problem;
    VEC(uint32_t) holders;        /* indices of processes */
    unsigned late[SLR_MAX_RANKS]; /* at how many looks another rank was ahead */
};

struct top {
    VEC(struct top_process) processes;
    VEC(struct top_block) blocks;
    unsigned looks;
    uint64_t now_ms;
};

/* ---- find.c ---- */

/* Fills *t, which is empty: all jobs of this user, or those of the `n` processes `pids`. False: none of these can be
 * shown; why has been told on stderr. */
bool top_find(struct top *t, const pid_t *pids, size_t n);
void top_free(struct top *t);

/* ---- look.c ---- */

/* Looks for `ms` which ranks come late, and notes who is which rank. */
void top_look(struct top *t, unsigned ms);

/* The process of a rank; NULL: it has ended. */
const struct top_process *top_process_of(const struct top *t, const struct top_block *b, int rank);

/* "runs", "stopped", "failed", "left", "ended" */
const char *top_rank_state(const struct top *t, const struct top_block *b, int rank);
bool top_rank_runs(const struct top *t, const struct top_block *b, int rank);

/* "connected" and its like; a reason, of a communicator that was refused later: its calls are NCCL's. */
const char *top_block_state(const struct top_block *b);

/* Share of the looks, from 0 to 1. */
double top_late(const struct top *t, const struct top_block *b, int rank);

/* Of call sites, by what has been chosen. */
struct top_sites {
    unsigned ring, nccl, none;
};
struct top_sites top_sites(const struct top_block *b);

/* What a rank has put into its post. */
struct slr_shown top_shown(const struct top_block *b, int rank);

/* Since the latest call of a process; below 0: there was none. */
double top_idle_s(const struct top *t, const struct top_process *p);

/* ---- what is written ---- */

void top_write_text(FILE *to, const struct top *t);
void top_write_json(FILE *to, const struct top *t);
void top_write_metrics(FILE *to, const struct top *t);

#endif
