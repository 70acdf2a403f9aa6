/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder trials/ alone: a communicator's state, and what its files do for each other. find.c says to which
 * site a call belongs, trials.c which way it goes, measure.c takes times, choice.c tells them to the other ranks and
 * chooses, duel.c begins duels, known.c reads and keeps. All under the communicator's lock. */
#ifndef SLR_PLUGIN_TRIALS_TRIALS_IMPL_H
#define SLR_PLUGIN_TRIALS_TRIALS_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/counters.h"
#include "base/real.h"
#include "plugin/comm/comm.h"
#include "plugin/trials/period.h"
#include "plugin/trials/program.h"
#include "plugin/trials/ways.h"
#include "plugin/util/consumer.h"

/* ---- samples.c: how long a site's calls take on a rank, of each row (docs/trials.md) and way. Where events are
 * recorded, the communicator's context is current. ---- */

/* ---- clocks: how long a gather takes, with the GEMM that consumes it ---- */

#define SLR_CLOCK_PATIENCE 256u /* calls of the communicator */
#define SLR_CLOCKS 512          /* measured calls: the host may be that far ahead */

struct slr_clock {
    enum { SLR_CLOCK_FREE, SLR_CLOCK_RUNS, SLR_CLOCK_STOPPED } state;
    CUevent begin, gathered, consumed; /* NULL: not made yet */
    bool ended;                        /* `gathered` has been recorded */
    bool eaten;                        /* and `consumed` */
    bool open;
    uint64_t call;          /* the caller's: its number among the communicator's */
    uint64_t from;          /* host, ns */
    float period;           /* to the next call, in another group, ms */
    bool idle;              /* its stream had nothing left to do when that came */
    struct slr_clock *mate; /* of the site's call before in the same group; NULL: none */
    /* The caller's: what is measured. */
    uint32_t site;
    int way;
    uint32_t round;
    uint32_t stage; /* its number */
    uint64_t gemm;
    bool known;
};

/* NULL: none is free, or an event could not be made. */
struct slr_clock *slr_clock_begin(struct slr_clock *clocks, CUstream stream);
void slr_clock_gathered(struct slr_clock *clock, CUstream stream);
void slr_clock_consumed(struct slr_clock *clock, CUstream stream);

/* No GEMM will come any more. False: it has no time, and is free again. */
bool slr_clock_stop(struct slr_clock *clock);

/* The next call of the site of a stopped one, and of its mates, comes, on `stream`, on which nothing of it has been put
 * yet. */
void slr_clock_next(struct slr_clock *clock, CUstream stream);

/* The stopped one of the earliest call, if it is over, with its time; 0: that is not known. Or one that is still open
 * at call number `now`, and is not waited for any longer: then it has none. NULL: there is none. */
struct slr_clock *slr_clock_read(struct slr_clock *clocks, uint64_t now, float *ms);

void slr_clocks_close(struct slr_clock *clocks);

/* ---- what has been measured of one row (ways.h) on this rank ----
 *
 * A way's time is the device's, unless in any way the device was nearly always done when the site's
 * next call came: then the program waits for the host in that way at least, and all are compared by
 * what an iteration takes, the time from call to call or the device's, whichever is longer. (The host
 * may run ahead of a device that is busy.)
 */

#define SLR_SAMPLES SLR_TRIAL_PERIOD /* of a way in a round, at most */

struct slr_samples {
    uint64_t gemm; /* slr_consumer_hash(&what) */
    uint32_t site;
    struct slr_consumer what;
    struct slr_trial_row
        before; /* what was measured when all ways have been in one stage, the latest; calls 0: never */
    uint8_t count[SLR_WAYS][SLR_TRIAL_ROUNDS];
    float ms[SLR_WAYS][SLR_TRIAL_ROUNDS][SLR_SAMPLES];     /* on the device */
    float period[SLR_WAYS][SLR_TRIAL_ROUNDS][SLR_SAMPLES]; /* from call to call on the host, or ms if that is longer */
    uint8_t idle[SLR_WAYS];                                /* how often the device was done at the next call */
};

/* A call's times. NULL: nothing. */
void slr_samples_add(struct slr_samples *row, const struct slr_clock *clock, float ms);

/* A stage begins. */
void slr_samples_forget(struct slr_samples *row);

/* Every way has been measured in more than half of the rounds, if not now, then in a stage before. */
bool slr_samples_tried(const struct slr_samples *row, uint32_t rounds);

/* Now, in the stage that tries all ways. */
bool slr_samples_whole(const struct slr_samples *row, uint32_t rounds);

/* Times are the host's. */
bool slr_samples_of_host(const struct slr_samples *row, uint32_t rounds);

/* For the other ranks. `base`: the way that others are compared with. */
struct slr_trial_row slr_samples_row(const struct slr_samples *row, uint32_t rounds, int base);

/* The same at the end of a stage. What all ways have taken counts until all are measured anew: a stage that has missed
 * some of them says what an earlier one has found. But a GEMM that has not come at all is the program's no more. */
struct slr_trial_row slr_samples_post(struct slr_samples *row, uint32_t rounds, int base, enum slr_stage stage);

struct slr_comm;
struct slr_call;
struct slr_trials;

/* ---- find.c ---- */

#define SLR_CONTEXT_CALLS 3
#define SLR_CONTEXT_OFTEN 4u
#define SLR_CONTEXT_SHARE 16u
#define SLR_CONTEXTS 8       /* sites of a size, most */
#define SLR_CONTEXTS_SEEN 64 /* contexts that are no site yet; then the oldest is forgotten */

/* Contexts are never 0: no call has been in one. */
struct slr_trial_contexts {
    uint64_t now; /* of the next call */
    struct {
        uint64_t context;
        size_t shard;
        const struct slr_collective *kind;
        uint32_t calls;
    } seen[SLR_CONTEXTS_SEEN];
    uint32_t added;
};

#define SLR_TRIALS_ROWS (SLR_TRIAL_SITES * SLR_TRIAL_ROWS)
#define SLR_SPARSE_LEAST 4
#define SLR_TRIALS_TOGETHER 16      /* gathers of a group that are measured, most */
#define SLR_TRIALS_GONE 512u        /* calls of the communicator without one of a site */
#define SLR_TRIALS_WATCHED SLR_WAYS /* as a clock's way: the time is not of interest */

/* What the program takes (duel.c) has to do with a choice. */
enum slr_program_says {
    SLR_PROGRAM_NOTHING,
    SLR_PROGRAM_DECIDES,
    SLR_PROGRAM_DOUBTS /* it speaks against the choice, and is not certain */
};

/* Whatever belongs to the calls of a site. */
struct slr_trial_site {
    size_t shard;
    const struct slr_collective *kind;
    uint64_t context;              /* find.c; of a size's first site 0 until one has come often */
    int like;                      /* the size's first site; -1: it is the one */
    uint64_t in_all;               /* of a size's first site: calls of the size */
    struct slr_trial_calls *gemms; /* likewise, rank 0's: before them (form.c); NULL: nothing is kept */
    uint64_t look;                 /* the call of the size from which on its form is looked for; */
    uint32_t off;                  /* since it was: calls that came behind another GEMM */
    uint64_t born;                 /* number of its first call */
    uint64_t called;               /* the communicator's calls, with its latest one */
    uint64_t from;                 /* of a duel: the communicator's call at which it began */
    uint64_t duel_end, duel_calls; /* of the latest duel: the first call behind it, and how many it had; 0: none */
    uint32_t run;
    enum slr_site_state state;     /* slr_trials_event() */
    struct slr_block_pairs pairs;  /* rank 0's: of its duels since its ways were tried, if they ever were */
    enum slr_program_says program; /* rank 0's: of the latest choice */
    uint64_t apart;                /* calls that came behind another site's */
    bool sparse;                   /* docs/trials.md; of the stage that it is in */
    uint64_t went[2];              /* calls by what is in force, since that was last changed: [1]: over the ring */
    uint64_t calls;                /* since its ways began to be tried, or are going to be */
    uint64_t seen, alone;          /* since it is known; of these, outside of groups */
    uint64_t told;                 /* whose times tell of them, watched ones too: measure.c */
    bool small;                    /* find.c */
    uint64_t early;                /* of a small one, before its ways are tried */
    uint32_t again;                /* as slr_trial_choice's */
    int before_duel;               /* rank 0's: the better one in the first stage; -1: of this duel there was none */
    uint32_t watched, strangers;   /* calls behind the trials; those with another GEMM than was tried */
    uint32_t period;               /* by which the stage goes that it is in */
    struct slr_trial_gemms behind; /* rank 0's */
    const struct slr_trial_known *known; /* known.c */
    struct slr_clock *latest;            /* of its latest measured call, until the next one comes; or NULL */
};

/* A gather that is measured, and that a GEMM may still consume. The atomic ones are for a look without the lock. */
struct slr_trial_run {
    struct slr_clock *clock;
    struct slr_consumer consumer; /* the latest GEMM */
    _Atomic bool more;            /* the GEMM needs all of it: the next one may consume it, */
    CUstream more_on;             /* on the same stream */
    _Atomic uintptr_t begin, end; /* the receive buffer */
};

struct slr_trials {
    struct slr_agreed agreed;
    struct slr_trials_shared *shared; /* in the control block */
    uint32_t rounds, after;
    bool keeps;             /* rank 0's: results are worth keeping */
    size_t min, floor;      /* find.c: gathered bytes */
    bool large, small_full; /* there has been a gather that is not small; more sizes than are tried */
    struct slr_trial_site site[SLR_TRIAL_SITES];
    unsigned sites;
    struct slr_trial_contexts contexts;
    int site_before; /* of the latest call */
    struct slr_samples row[SLR_TRIALS_ROWS];
    unsigned rows;
    struct slr_clock clocks[SLR_CLOCKS];
    struct slr_blocks blocks;
    uint64_t turns_posted; /* of which duel: blocks.upto */
    unsigned clocks_out;   /* are not free */
    unsigned trying;       /* sites that are TRYING */
    struct slr_trial_run
        run[SLR_TRIALS_TOGETHER]; /* the latest gather, or those of the latest group, as far as they are
                                                    * measured */
    _Atomic unsigned runs;
    uint64_t runs_group; /* 0: it is alone */
    uint64_t ways_group;
    unsigned ways;            /* that its calls have had in turn, as bits */
    struct slr_clock *making; /* of a GEMM before a reduce-scatter that is to be measured; or NULL */
    struct slr_consumer made; /* that GEMM */
    struct slr_trial_choice coming, in_force;
    struct slr_trial_turn now;    /* of the latest call that counts */
    uint64_t held_since;          /* rank 0's: the call since which a site waits for its duel; 0: none does */
    bool warming;                 /* find.c */
    struct slr_trial_calls calls; /* rank 0's */
    uint64_t group;               /* of the latest call; 0: it was alone */
};

static inline void slr_trials_event(struct slr_trials *t, struct slr_trial_site *s, enum slr_site_event event)
{
    t->trying -= s->state == SLR_SITE_TRYING;
    slr_site_next(&s->state, event);
    t->trying += s->state == SLR_SITE_TRYING;
}

/* Rank 0's: a duel is due. */
static inline bool slr_trials_is_held(const struct slr_trial_site *s)
{
    return s->state == SLR_SITE_WAITING || s->state == SLR_SITE_AGAIN;
}

/* Rank 0's: of the stage that it is in nothing is to be chosen any more. */
static inline bool slr_trials_is_decided(const struct slr_trial_site *s)
{
    return s->state >= SLR_SITE_DECIDED;
}

static inline int slr_trials_base(const struct slr_trial_site *s)
{
    return s->small || s->kind->untried != SLR_R_RING ? SLR_WAY_NCCL : SLR_WAY_RING;
}

static inline struct slr_turns slr_trials_turns(const struct slr_trials *t, const struct slr_trial_site *s)
{
    const enum slr_stage stage = slr_stage_of(s->again);
    return (struct slr_turns){.after = stage == SLR_STAGE_DUEL ? s->from : t->after,
                              .rounds = t->rounds,
                              .period = s->period,
                              .stage = stage,
                              .sparse = s->sparse,
                              .run = s->run};
}

/* Its calls stand among those of other sites, three of four at least. */
static inline bool slr_trials_is_sparse(const struct slr_trial_site *s)
{
    return s->seen >= SLR_SPARSE_LEAST && s->apart * 4 >= s->seen * 3;
}

/* The site by whose choice, or rule, a call of this one goes: its own, or its size's first one's. */
static inline uint32_t slr_trials_goes_by(const struct slr_trials *t, const struct slr_trial_choice *choice,
                                          uint32_t site)
{
    const struct slr_trial_site *s = &t->site[site];
    return s->like < 0 || s->known || choice->chosen[site] ? site : (uint32_t)s->like;
}

/* Of the site's size. */
static inline struct slr_trial_site *slr_trials_first(struct slr_trials *t, int site)
{
    return &t->site[t->site[site].like < 0 ? site : t->site[site].like];
}

/* Else it is of an earlier phase of the program, perhaps. */
static inline bool slr_trials_is_called(const struct slr_trials *t, const struct slr_trial_site *s)
{
    return t->agreed.calls - s->called <= SLR_TRIALS_GONE;
}

/* This thread is in the group whose calls are measured. */
bool slr_trials_same_group(const struct slr_trials *t);

/* Its calls are in groups with others, for the most part. */
static inline bool slr_trials_is_grouped(const struct slr_trial_site *s)
{
    return s->alone * 2 < s->seen;
}

/* The first call behind the stage that the site is in: the site's own, in a duel the communicator's. */
static inline uint64_t slr_trials_stage_end(const struct slr_trials *t, const struct slr_trial_site *s)
{
    const struct slr_turns turns = slr_trials_turns(t, s);
    return slr_trials_end(&turns);
}

/* The next call of the site is behind that. */
static inline bool slr_trials_is_over(const struct slr_trials *t, const struct slr_trial_site *s)
{
    return (slr_stage_of(s->again) == SLR_STAGE_DUEL ? t->agreed.calls : s->calls) >= slr_trials_stage_end(t, s);
}

/* Rank 0's: what they have measured of the stage that the site is in. */
static inline bool slr_trials_posted_by_all(const struct slr_trials *t, uint32_t site)
{
    for (int r = 0; r < t->agreed.nranks; r++)
        if (atomic_load(&t->shared->post[r].site[site].times) <= t->site[site].again)
            return false;
    return true;
}

/* ---- measure.c ---- */

/* No GEMM will come any more that consumes the latest gather. */
void slr_trials_stop(struct slr_trials *t);

/* The row has been measured in every way. */
bool slr_trials_has_tried(struct slr_trials *t, uint64_t gemm, uint32_t site);

/* The clock of a reduce-scatter begins, before its GEMM; `site` -1: it is not measured. */
void slr_trials_make(struct slr_comm *c, int site, const struct slr_consumer *gemm, CUstream stream);

/* The next call of `site` (-1: of none) comes, on `stream`: takes the times that are known by now. The context is
 * current. */
void slr_trials_read(struct slr_trials *t, int site, CUstream stream);

/* Times of the site's calls are still on their way. */
bool slr_trials_awaits(const struct slr_trials *t, uint32_t site);

/* ---- duel.c: rank 0's ---- */

/* Duels are one: it begins when nothing is tried any more, or has been waited for long enough. */
bool slr_duel_may_begin(struct slr_trials *t);

/* How many calls of the communicator a turn of it has to have, so that the site is measured; `least` at least. */
uint32_t slr_duel_length(const struct slr_trials *t, uint32_t site, uint32_t least);

/* What the turns of the latest one took, on the slowest rank. */
void slr_duel_turns(const struct slr_comm *c, float ms[2][SLR_TRIAL_ROUNDS]);

/* It is over, and was of so many sites; `felt`: what the program takes has decided for a way, or -1, by `pairs`. */
void slr_duel_tell(const struct slr_comm *c, unsigned sites, const struct slr_block_pairs *pairs, int felt);

/* ---- choice.c ---- */

/* What this rank has measured of the sites of which nothing is on its way. */
void slr_trials_post(struct slr_trials *t);

/* Rank 0's: proposes what is due. */
void slr_trials_lead(struct slr_comm *c);

/* What has been agreed holds from this call on. */
void slr_trials_go_by(struct slr_trials *t);

/* ---- find.c ---- */

/* Of the next call; -1: none, there are too many. Call it once for each. */
int slr_trials_find(struct slr_comm *c, const struct slr_call *call, bool small);

/* The same, of a call that is yet to come, if it is the next one: nothing is counted. */
int slr_trials_peek(const struct slr_trials *t, size_t shard, const struct slr_collective *kind);

/* The size's first site. */
int slr_trials_first_of(const struct slr_trials *t, size_t shard, const struct slr_collective *kind);

/* ---- form.c ---- */

/* NULL: none is known. And what it says of a call of the size, by its number. */
const struct slr_trial_form *slr_form_of(const struct slr_trial_choice *choice, size_t shard,
                                         const struct slr_collective *kind);
uint16_t slr_form_at(const struct slr_trial_form *form, uint64_t number);

/* Rank 0's: a call of the size, which has been counted, comes behind that GEMM; 0: behind none. */
void slr_form_note(struct slr_trials *t, struct slr_trial_site *first, uint64_t gemm);

/* Rank 0's: true: a form that the others do not know has been put into *choice. */
bool slr_form_look(const struct slr_trials *t, struct slr_trial_site *first, struct slr_trial_choice *choice);

void slr_form_close(struct slr_trials *t);

/* ---- find.c: small gathers ---- */

#define SLR_SMALL_PART 8u
#define SLR_SMALL_WARM 16u
#define SLR_SMALL_SITES 6u

/* For the post: from how many gathered bytes on this rank would try the ring. */
uint64_t slr_small_floor(void);

/* The communicator has been agreed on: sets its least_bytes. */
void slr_small_open(struct slr_comm *c);

/* A call of so many gathered bytes comes. False: it is small, and not for the trials. */
bool slr_small_admits(struct slr_comm *c, size_t bytes);

/* Something has been agreed. */
void slr_small_bound(struct slr_comm *c);

/* A small call of this site, or of none (-1), stays with NCCL and is not measured. */
bool slr_small_is_quiet(const struct slr_trials *t, int site);

/* Of a small site, before its ways are tried: counts the call. False: it is behind that. */
bool slr_small_early(struct slr_trials *t, struct slr_trial_site *s);

/* ---- known.c: what the tune file knows of call sites, and what is kept there ----
 *
 * Rank 0 reads the file when the ranks have posted, takes what fits the communicator as it is, and
 * writes it into the control block before it says READY. All ranks go by that; so it does not matter
 * whether the others have the file, or another one, or when it changes. */

/* For the post: the model of this rank's GPU. */
uint64_t slr_known_gpu(const struct slr_comm *c);

/* Rank 0's, when all have posted. */
void slr_known_publish(struct slr_comm *c);

/* The first rule for gathers, or reduce-scatters, of so many bytes in all, in that context (find.c; 0: in whichever) or
 * else in whichever; NULL: none is known. It decides between ring and NCCL. */
const struct slr_trial_known *slr_known_site(const struct slr_trials *t, size_t bytes,
                                             const struct slr_collective *kind, uint64_t context);

/* Of a site with `known`, the first rule of the same kind that is for this GEMM, which consumes its gathers
 * or makes what is sent; NULL: none is, or the site has been tried since. */
const struct slr_trial_known *slr_known_consumer(const struct slr_trials *t, uint32_t site,
                                                 const struct slr_consumer *consumer);

/* Rank 0's: has what was chosen for one row kept (plugin/tuner/tuner.h). */
void slr_known_keep(const struct slr_comm *c, const struct slr_samples *row, const struct slr_trial_choice *choice);

/* The same of a site of which no row was measured. */
void slr_known_keep_site(const struct slr_comm *c, uint32_t site, const struct slr_trial_choice *choice);

#endif
