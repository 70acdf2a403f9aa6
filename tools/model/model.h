/* SPDX-License-Identifier: Apache-2.0 */
/* What the logs of all ranks say, as data: processes, communicators, their gathers and spans.
 * model_add() takes lines, model_finish() puts them in order; everything else only reads.
 *
 * Times are ns of CLOCK_MONOTONIC; in a run that spans hosts, of the first host, by the difference
 * of their wall clocks. Texts are interned: equal texts are one pointer, so they are compared with
 * ==. All belongs to the model.
 */
#ifndef SLR_TOOLS_MODEL_H
#define SLR_TOOLS_MODEL_H

#include "base/counters.h"
#include "plugin/callers/callers.h"
#include "tools/symmetry/compare.h"
#include "tools/log/log_read.h"
#include "tools/common/vec.h"

#define MODEL_NONE UINT32_MAX

enum lane { LANE_APP, LANE_PUBLISH, LANE_PULL, LANE_COPY, LANES };
enum span_kind { SPAN_OWN, SPAN_STAGE, SPAN_PUSH, SPAN_PULL, SPAN_WAIT, SPAN_GEMM, SPAN_NCCL, SPAN_SUM, SPAN_KINDS };
extern const char *const span_names[SPAN_KINDS];

struct span {
    int64_t begin, end;
    uint64_t call, bytes;
    int32_t peer, piece;
    uint8_t lane, kind;
    bool pass; /* of a passed all-gather: `call` counts those */
};

struct gather { /* or a call of the ring whose GEMM comes before it: line scatter */
    int64_t begin, end, exposed, clock_error;
    uint64_t call, shard, count, context;
    uint32_t site; /* of the communicator's call sites */
    const char *reason, *ended, *dtype, *stream;
    uint32_t slot, place, push, pieces;
    uint32_t parts; /* of a line scatter */
    enum slr_collective_id op;
    bool in_place, pass;
};

/* Another collective: from events on its stream (`collective`), or from NCCL's profiler (`nccl`:
 * with algorithm). */
struct collective {
    int64_t begin, end, kernel;       /* kernel: 0 unknown */
    uint64_t seq, call, count, bytes; /* call: of the passed all-gather that it is; 0: none */
    const char *func, *dtype, *reason, *algo, *proto, *stream;
    uint32_t channels;
    bool profiled; /* begin and end are when it was handed to the GPU */
};

struct collective_sum { /* nccl_sum */
    const char *func, *dtype, *reason, *algo, *proto;
    uint64_t bytes, calls, timed, channels; /* times are of those timed */
    int64_t min, mean, max;
};

struct tuned { /* a decision of the tuner */
    const char *func, *algo, *proto, *from;
    uint64_t bytes, nranks;
    int32_t channels;
};

struct phase {
    uint64_t number, first, period;
    const char *by;
};

/* A buffer of a call site, as its phase's last call left it. */
struct symmetry {
    uint64_t phase, site, shard, calls, since, breaks, moves;
    enum slr_collective_id op;
    const char *buffer;       /* recv, send or both */
    struct sym_finding found; /* its ranks are the communicator's */
    struct sym_where at;      /* of the first rank that is known of */
};

/* A place of a rank: line place. In place what lies in the other buffer is taken back to its beginning. */
struct rank_place {
    uint64_t call; /* its first; 0: not told */
    struct sym_use use;
};

/* One call and its place: lines places. */
struct placed {
    uint64_t call;
    uint32_t place;
};

/* A shape of calls and what became of it: lines substitute and pass, fused, joined, overtaken; produced, of older
 * libraries with no `op` (SLR_ALL_GATHER). */
struct shape {
    enum log_event event;
    enum slr_collective_id op;
    uint64_t shard, count, parts, m, n, k;
    bool in_place, made;
    const char *dtype, *reason, *by, *form, *api, *via;
    const char *reads, *trans, *recv, *a, *b; /* of a GEMM that has joined or overtaken a gather; NULL: not told */
    uint64_t read_bytes;
};

/* Who makes calls: lines caller, of a shape, and caller_place. */
struct caller {
    uint64_t call; /* 0: of a shape, by what follows */
    uint32_t site; /* of the call: of the communicator's call sites; MODEL_NONE: not told */
    uint32_t place;
    uint64_t shard, count;
    enum slr_collective_id op;
    bool in_place;
    const char *dtype, *reason, *name;
};

enum { TRIAL_WAYS = 16 };

/* A call site: calls of one collective, size and context (docs/trials.md). */
struct trial_site {
    uint64_t shard, context;
    enum slr_collective_id op;
};

/* One of a communicator. */
struct call_site {
    struct trial_site what;
    uint32_t first;      /* the size's first one */
    uint32_t nth, alike; /* its number among those of its size, from 0; of the first: how many these are */
    uint32_t order;      /* its place among the communicator's, by collective, size (the largest first) and number */
};

/* The ways of a site, tried with one GEMM or with none: line tried. Times are ms, 0: none. */
struct trial {
    int64_t ts;
    struct trial_site site;
    uint32_t number;         /* of the site among the member's */
    uint64_t m, n, k, calls; /* m, n, k: 0 without a GEMM */
    uint64_t parts;          /* chosen; 1: whole, 0: by the pace */
    uint64_t batch;
    const char *trans, *type, *gathered; /* NULL: not told */
    const char *clock;                   /* device or host; NULL: not told */
    bool nccl;                           /* chosen */
    bool duel;                           /* of ring and NCCL, else all ways */
    bool open;                           /* nothing chosen: a duel comes */
    double ring_ms, nccl_ms;             /* of a duel the former is as chosen */
    unsigned ways;                       /* of those below, by number of equal parts */
    struct {
        uint64_t parts;
        double ms;
    } way[TRIAL_WAYS];
};

/* Ring and NCCL, compared by what all calls of a turn take together: line duel. Times are ms, 0: none.
 * `sites` 0: of a communicator over hosts, of its gathers, or line duel_of: of something else. */
struct duel {
    int64_t ts;
    uint64_t sites, calls;
    double ring_ms, nccl_ms;
    const char *by; /* ring, nccl, sites or none; with, without or none */
    const char *of; /* pieces, reducescatter or allreduce, and then the ring is with them; NULL: gathers */
};

/* Which way a site's calls go at the end: line site_way. */
struct site_way {
    int64_t ts;
    struct trial_site site;
    uint32_t number;
    uint64_t calls, over_ring, over_nccl; /* in all; since the way was chosen */
    const char *reason;
    bool nccl;
};

/* What a communicator fails with on a rank: line communicator_failed. */
struct failure {
    int64_t ts;
    int32_t peer;    /* because of which rank; -1 none */
    uint64_t call;   /* the latest of the ring before it */
    const char *why; /* NULL: it has not failed */
};

/* One rank of one communicator. */
struct member {
    uint32_t comm, process, rank; /* indices */
    int32_t crank;
    bool ring;          /* as its communicator line says */
    uint64_t hosts;     /* that it spans, if so; else 0 */
    const char *inside; /* the communicator of its host's ranks, over which it goes there; NULL: none */
    const char *reason; /* why not; NULL unknown */
    int32_t peer;       /* because of which rank; -1 none */
    struct failure failure;
    const char *device, *device_name;
    uint64_t slot_bytes, staging_bytes, mapped_bytes, exported_bytes, every;
    uint64_t dropped, failed, unfinished; /* traced gathers that are not in the log; spans that are not, see `cut` */
    uint64_t cut;

    VEC(struct gather) gathers;  /* in order of decision and call */
    VEC(struct gather) scatters; /* lines scatter; these are numbered with the ring's gathers */
    VEC(struct span) spans;      /* in order of decision, call and begin */
    VEC(struct collective) collectives;
    VEC(struct collective_sum) sums;
    VEC(struct rank_place) places; /* by number */
    VEC(struct placed) placed;     /* in order of the calls */
    uint64_t placed_calls;         /* that it has made, listed or not; 0: not told */
    uint64_t placed_more;          /* of these, at places without a number */
    VEC(struct shape) shapes;
    VEC(struct shape) scatter_shapes; /* of all but gathers; lines produced */
    VEC(struct caller) callers;
    VEC(struct trial) trials;  /* in order of time */
    VEC(struct duel) duels;    /* likewise */
    VEC(struct site_way) ways; /* one for each site, by its number */
    VEC(struct trial_site)
    trial_sites;              /* of trials and ways, by their number: of each size in the order of its first line */
    VEC(uint32_t) call_sites; /* what these are of the communicator's */
};

struct comm {
    const char *name;
    uint32_t run, nranks;
    VEC(uint32_t) members;    /* in order of crank */
    VEC(struct phase) phases; /* in the order in which they were found */
    VEC(struct symmetry) symmetry;
    uint64_t compared; /* calls whose places are known of all ranks that have told any */
    VEC(struct call_site) sites;
    uint32_t teller; /* the member that has told which way they go; MODEL_NONE: none has */
};

struct reason_count {
    const char *reason;
    uint64_t n;
};

struct note { /* a warning, an error, or why memory is not shared */
    const char *level, *event, *text;
    uint64_t n; /* how often */
};

struct process {
    const char *host;
    const char *version, *settings, *command; /* NULL: not told */
    uint64_t nccl, cuda;                      /* versions; 0: not told */
    int64_t pid;
    int32_t rank; /* of its first communicator; -1 unknown */
    uint32_t run;
    int64_t first_ts, last_ts, wall_offset; /* wall - monotonic, ns; 0 unknown */
    bool has_summary, has_blocks;
    int64_t totals_ts; /* of the latest line totals; 0: none */
    /* Of the lines summary, totals and blocks. Without a summary not less than what lines show: it was killed, or ended
     * by _exit, or could not write. */
    int64_t summary[F_FIELDS];
    VEC(struct reason_count) counts[SLR_COLLECTIVES];
    VEC(struct note) notes;
    VEC(struct tuned) tuned;
};

/* What has a row of its own in pictures: a rank, that is a process and device. */
struct rank {
    uint32_t process, run;
    int32_t number; /* -1 unknown */
    const char *device, *device_name, *label;
};

struct run {
    int64_t first_ts, last_ts, wall; /* wall: ns since 1970 of first_ts; 0 unknown */
    VEC(uint32_t) processes;
    VEC(uint32_t) comms;
    VEC(uint32_t) ranks; /* in order of number */
};

struct file_start { /* the first good line of a file */
    uint32_t process;
    int64_t ts;
    const char *file;
};

struct model {
    VEC(struct process) processes;
    VEC(struct member) members;
    VEC(struct comm) comms;
    VEC(struct rank) ranks;
    VEC(struct run) runs; /* in order of time */
    VEC(struct file_start) starts;
    uint64_t twice; /* gathers and spans that were told twice, and left out */
    struct model_tables *tables;
    struct log_reader *reader; /* for messages while lines are added */
};

/* That of a line, by its field `op`; where it is not told or not known, all-gathers. */
enum slr_collective_id model_op(const struct log_record *r);

void model_init(struct model *m, struct log_reader *reader);
void model_free(struct model *m);

/* A log_record_fn; ctx is the model. */
bool model_add(void *ctx, const struct log_record *record);
void model_finish(struct model *m);

/* The one pointer for this text. NULL stays NULL. */
const char *model_intern(struct model *m, const char *text);

/* The phase that a moved call belongs to; NULL: none. */
const struct phase *comm_phase(const struct comm *c, uint64_t call);
/* The gather of a call; NULL: not traced. */
const struct gather *member_gather(const struct member *b, bool pass, uint64_t call);
/* The same of a call of any collective. */
const struct gather *member_call(const struct member *b, bool pass, uint64_t call);
/* The spans of a call: their number, the first in *at. */
size_t member_spans(const struct member *b, bool pass, uint64_t call, const struct span **at);

/* The number of a size's first call site; MODEL_NONE: there is none (model_sites.c). */
uint32_t comm_first_site(const struct comm *c, enum slr_collective_id op, uint64_t shard);

/* The names of who makes the calls of a communicator that fit, of all its ranks (model_callers.c). */
void comm_callers(const struct model *m, uint32_t comm, bool (*fits)(const void *what, const struct caller *c),
                  const void *what, struct slr_names *names);

/* True when the run's devices are the software GPU: its times are a model's or a CPU's. */
bool run_is_software(const struct model *m, const struct run *r);

#endif
