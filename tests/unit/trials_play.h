/* SPDX-License-Identifier: Apache-2.0 */
/* The folder plugin/trials/, two ranks in one thread, each some calls ahead of the other in turn, on a driver whose
 * time goes on by what a call is said to take. */
#ifndef TESTS_UNIT_TRIALS_PLAY_H
#define TESTS_UNIT_TRIALS_PLAY_H

#include <criterion/criterion.h>
#include "plugin/comm/call.h"
#include "plugin/comm/lane.h"
#include "plugin/trials/trials.h"
#include "plugin/trials/trials_impl.h"
#include "plugin/tuner/tune_table.h"
#include "plugin/tuner/tuner.h"

enum { RANKS = 2, CALLS = 12000, LARGE = 4 << 20, SMALL = 1 << 20, AHEAD = 7 };
enum { OF_WAYS = 3 * SLR_WAYS * SLR_TRIAL_RUN, OF_DUEL = 3 * 2 * 12, DECIDED = 320 };

struct rank {
    struct slr_comm comm;
    struct slr_lane lane;
    int calls;
    struct went { /* of each call */
        enum slr_reason why;
        uint32_t parts, stage;
        bool trying;
    } went[CALLS];
};
extern struct rank ranks[RANKS];

/* What a call takes. */
struct model {
    double nccl, pace, parts[13]; /* ms; 0: as by the pace */
    double later;                 /* behind the first stage the ring takes so much more; 0: as before */
};
extern struct model model;
extern const struct model *models;  /* by GEMM; NULL: model is of all */
extern const struct model *by_size; /* by the calls' size, from 1; NULL: it does not matter */
extern const char *program;         /* its GEMMs, a letter each, which come again and again; NULL: gemm_m */
extern const char *sizes;           /* likewise the calls' sizes, 1 for `shard`, 2 for twice that; NULL: all 1 */
extern const char *groups; /* likewise where calls stand: ( the first, - one within, ) the last of a group, or . */
extern int64_t gemm_m;
extern int64_t before_m;   /* of one that needs all of the gather, which comes first; 0: none does */
extern int64_t stranger_m; /* of one that reads other memory that was the gather's, and comes second; 0: none does */
extern size_t shard;
extern bool reduces;         /* the calls are all-reduces, of what the GEMM computes before them */
extern bool broken;          /* events can not be recorded */
extern double beside[2];     /* ms from a call to the next besides: over the ring, by NCCL */
extern double hiccup;        /* ms that one of 37 calls of rank 1 takes longer */
extern const double *uneven; /* ms besides of a call, by the turn of a duel, six of them; NULL: by `steady` */
extern bool steady;          /* else every turn of a duel takes some more, the ring's or NCCL's in turn */
extern double half[2];       /* ms besides in each half of 24 calls, */
extern int phase;            /* which begin so many calls earlier */
extern int ahead;            /* calls that the host is ahead of the device */
extern int grouped;          /* so many calls are a group; 0: none are */
extern unsigned kept;        /* rules */
extern struct slr_tune_site latest_kept;

void trials_open(void);
void trials_close(void);

/* So many calls of each rank; both go the same way. */
void go(int calls);
const struct went *latest(void);

/* Of the calls from..to, how many were trials. */
int tried(int from, int to);

/* The calls of a stage, and how many of them went over the ring in so many parts; -1: all. */
int in_stage(uint32_t stage, int parts);

/* How many rows a rank has posted of the first site. */
uint32_t control_rows(int rank);

#endif
