/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks tell each other of the ways that they have tried, in the control block: trials/ways.h. */
#ifndef SLR_PLUGIN_COMM_TRIAL_ROW_H
#define SLR_PLUGIN_COMM_TRIAL_ROW_H

#include <stdatomic.h>
#include <stdint.h>
#include "plugin/comm/agreed_change.h"
#include "plugin/util/consumer.h"

#define SLR_WAYS 7
enum { SLR_WAY_RING, SLR_WAY_NCCL, SLR_WAY_WHOLE, SLR_WAY_PARTS }; /* and those behind it */

#define SLR_TRIAL_ROUNDS 5u /* most */
#define SLR_TRIAL_ROWS 6    /* of a site */
#define SLR_TRIAL_SITES 96

/* What a rank has measured of a row. */
struct slr_trial_row {
    uint64_t gemm; /* what names the GEMM, equal on ranks that make the same call; 0: none consumed it */
    uint32_t site;
    uint32_t calls;        /* measured */
    uint32_t of_host;      /* the times are the host's (trials/samples.c) */
    float ms[SLR_WAYS];    /* medians; 0: too few were measured */
    float worst[SLR_WAYS]; /* of all rounds the largest ratio to the way in use without trials, in the same round */
};

/* What has been chosen of rows; of a site: what its gathers go by. */
struct slr_trial_chosen {
    uint64_t gemm;
    uint32_t site;
    int32_t way;
};

/* Of the calls of a size number `from` + i comes behind GEMM gemm[i % period]: trials/form.c. */
#define SLR_FORM_PERIOD 341u
#define SLR_TRIAL_FORMS 4u
struct slr_trial_form {
    uint64_t shard, from;
    int32_t kind; /* enum slr_collective_id */
    uint32_t period;
    uint16_t gemm[SLR_FORM_PERIOD]; /* a part of its hash; 0: none */
};

struct slr_trial_choice {
    int32_t site_way[SLR_TRIAL_SITES]; /* SLR_WAY_RING or SLR_WAY_NCCL */
    uint32_t again[SLR_TRIAL_SITES];   /* the stage that its trials are ordered to be in: trials/ways.h */
    uint32_t chosen[SLR_TRIAL_SITES];  /* 1 + `again` of the latest stage by which one was chosen; 0: never */
    uint32_t ended[SLR_TRIAL_SITES];   /* 1 + `again` of the latest stage that was ended: nothing is measured */
    uint32_t period[SLR_TRIAL_SITES];  /* calls of the site in which its GEMMs come once each; 0: not known */
    uint32_t duel_run; /* calls of the communicator in a turn of the duel that begins with this choice */
    uint32_t rows;
    struct slr_trial_chosen row[SLR_TRIAL_SITES * SLR_TRIAL_ROWS];
    uint32_t forms;
    struct slr_trial_form form[SLR_TRIAL_FORMS];
};

/* A rank's rows of its sites. It writes the rows, their number, and then, as `times`, 1 + the number of the
 * stage that they are of: they stay until the end of the next one. */
struct slr_trial_post {
    struct {
        _Alignas(64) _Atomic uint32_t times;
        uint32_t rows;
        struct slr_trial_row row[SLR_TRIAL_ROWS];
    } site[SLR_TRIAL_SITES];
    float turn[2][SLR_TRIAL_ROUNDS]; /* of the latest duel (trials/trials_impl.h): before `times` of its sites */
};

/* A rule of rank 0's tune file that fits the communicator (trials/known.c). */
struct slr_trial_known {
    uint64_t low, high; /* bytes of all ranks' shards together, both inclusive */
    uint64_t context;   /* trials/find.c; 0: any */
    struct slr_consumer consumer;
    int32_t kind; /* enum slr_collective_id */
    int32_t line; /* of the file */
    int32_t way;
};
#define SLR_TRIAL_KNOWNS (SLR_TRIAL_SITES * SLR_TRIAL_ROWS)

struct slr_trials_shared {
    struct slr_agreed_shared agreed; /* rank 0 proposes `choice` */
    struct slr_trial_choice choice;
    _Atomic uint64_t captured[SLR_TRIAL_SITES]; /* trials/ways.h */
    uint32_t knowns;                            /* written before rank 0 is READY, then constant */
    struct slr_trial_known known[SLR_TRIAL_KNOWNS];
    _Alignas(64) struct slr_trial_post post[];
};

#endif
