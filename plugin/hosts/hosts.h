/* SPDX-License-Identifier: Apache-2.0 */
/* The folder hosts/: calls of communicators that span several hosts (SLIPRING_HOSTS). docs/hosts.md has what is
 * agreed when such a communicator is made (lifecycle/make_hosts.c), why nothing deadlocks, and each bad case.
 *
 *   whole    the program's communicator, of all ranks; its record has `pass` SLR_R_HOSTS
 *   inside   a communicator of slipring's own, of the ranks of one host: an ordinary one, with a ring
 *   rail     one of NCCL's, of the ranks in the same place of each host, in the order of the hosts
 *   shadow   another one, of all ranks, for what they agree on (shadow.h): above all whether gathers go this way, or stay
 *            with NCCL (duel.c)
 *
 * A gather of the whole is, on a host of `per` ranks that is number h of `hosts`:
 *
 *   step 0      a gather of the inside, of the own host's shards
 *   step s      behind the arrival of the shard that the rail's rank h - s sends (modulo `hosts`): a gather of the
 *               inside, in place in the receive buffer, of the shards of host h - s
 *
 * These are pending together, as those of a group (pending/pending.h): what comes behind them on the stream joins, or
 * overtakes, as behind any gather. What a rank sends to the rail is sent from its buffer, and received in its place of the
 * receive buffer, by NCCL, on a stream of the rail's own that begins where the gather does (`entry`).
 *
 * Reduce-scatters and all-reduces: scatter/scatter.h, which has the ring's part, and below, sums.c.
 *
 * Ranks of a host call the inside's gathers in the same order, with the same sizes: those of the whole are. Whether the
 * ring of the inside takes one, or NCCL, is the matter of that host alone: the rail's part is the same. */
#ifndef SLR_PLUGIN_HOSTS_HOSTS_H
#define SLR_PLUGIN_HOSTS_HOSTS_H

#include <stdbool.h>
#include "base/real.h"
#include "base/status.h"
#include "kernels/scatter.h"
#include "plugin/hosts/shadow.h"

struct slr_call;
struct slr_comm;
struct slr_duel;

#define SLR_HOSTS SLR_TOGETHER /* most hosts: a gather has so many steps, and is pending as a whole */

struct slr_hosts {
    _Atomic int refs; /* the whole's, and the inside's */
    int hosts, per;   /* ranks of the whole: host * per + place */
    int host;         /* this rank's */
    int place;        /* among the ranks of its host: its rank of the inside */
    ncclComm_t inside, rail;
    struct slr_shadow shadow;
    struct slr_duel *duel;
    CUcontext ctx; /* of the device; the inside has it retained */
    CUstream stream;
    CUevent entry;    /* where a gather begins */
    uint64_t gathers; /* of the rail, for SLIPRING_TRACE */
    uint64_t singles; /* gathers outside of groups, for SLIPRING_VERIFY */
    bool small;       /* the next gather's pieces: duel.c */
    /* By step, from 1, and piece of the shard; the last one also: all is sent. */
    CUevent arrived[SLR_HOSTS][SLR_ARRIVALS];
    CUevent come[SLR_HOSTS]; /* by step: all of it; made with the rail */
    CUevent done;            /* where NCCL does the inside's part: all of it */
    /* Of reduce-scatters: sums.c. */
    bool sums;    /* all ranks can add */
    bool whole;   /* no shard goes by pieces: one thread may make the calls of several ranks (scatter/scatter.c) */
    bool strict;  /* a rank has SLIPRING_STRICT */
    size_t piece; /* bytes of a shard that go at a time */
    CUdeviceptr memory;        /* in halves, which take turns; 0: none yet */
    void *host_memory;         /* the same, where the device had none */
    unsigned half;             /* of the piece that has begun */
    CUevent summed[SLR_HOSTS]; /* by step: what the rail sends; 0: this host's own sum */
    CUevent unused[2];         /* by half: all of the piece is over */
    ncclComm_t split;          /* where NCCL puts the shadow, if it is split off another one's */
    struct slr_hosts *late;    /* a list of slr_hosts_owe()'s, and the next in another one's */
    struct slr_hosts *later;
};

/* A communicator that is split off from one that goes over hosts, on a rank that may get none. */
struct slr_hosts_split {
    struct slr_comm *parent; /* a use; NULL: it is no such one, or its turn is over */
    uint64_t turn;           /* of the parent's shadow */
    int color, key;
};

/* The host whose shards a step brings; the rail receives from it there. */
static inline int slr_hosts_of_step(const struct slr_hosts *h, int step)
{
    return (h->host - step + h->hosts) % h->hosts;
}

/* The host that receives from this one at the step (slr_hosts_of_step() of it is this one): so each step of a rank has one
 * peer to send to and one to receive from, and at any step all hosts are busy. */
static inline int slr_hosts_to_step(const struct slr_hosts *h, int step)
{
    return (h->host + step) % h->hosts;
}

/* ---- rail.c: in the context of the device, with the guard up ---- */

/* Streams and events, when the communicators are there. On failure nothing is left. */
enum slr_status slr_rail_open(struct slr_hosts *h);

/* Of the latest gather, which has not ended: the rank of the whole that the rail waits for; -1: not for any, or what stands
 * before the gather is not over, or all has ended. For the watchdog: waits for nothing. */
int slr_rail_awaits(struct slr_hosts *h);

/* Lets NCCL connect the ranks of the rail, at a moment that is the same for all: each pair exchanges what the first gather
 * would, one byte, in `memory` (two bytes on the device), and all add one. What it answers. */
ncclResult_t slr_rail_connect(struct slr_hosts *h, CUdeviceptr memory);

/* The next gather begins behind what is on `stream` now; any number of times. */
enum slr_status slr_rail_enter(const struct slr_hosts *h, CUstream stream);

/* Sends `send`, a shard of so many bytes, to one other host, and receives the step's into its place of `recv`, that of all
 * ranks, in pieces of `each`; records `arrived` and `come`. One step after the other: so the first host is complete as soon as
 * can be. */
ncclResult_t slr_rail_step(struct slr_hosts *h, int step, const void *send, char *recv, size_t bytes, size_t each);

/* Adds all hosts' `sum`, in place; records `come` of step 1. */
ncclResult_t slr_rail_add(struct slr_hosts *h, CUdeviceptr sum, size_t count, ncclDataType_t type, ncclRedOp_t op);

/* As one piece, from and to memory of slipring's own. Records `come`. */
ncclResult_t slr_rail_exchange(struct slr_hosts *h, int step, const void *send, void *recv, size_t bytes);

/* Nothing is in flight. */
void slr_rail_close(struct slr_hosts *h);

/* ---- sums.c: what reduce-scatters and all-reduces over hosts (scatter/scatter_hosts.c) need of the rail; likewise ---- */

/* `slot`: the smallest SLIPRING_SLOT_BYTES of all ranks. So much of each shard goes at a time as half of it holds for all other
 * hosts, and two of it for all ranks of a host. */
void slr_hosts_sums_fit(struct slr_hosts *h, size_t slot);

/* Whether all shards of so many bytes, of an all-reduce those of a host's ranks, are one piece each. */
bool slr_hosts_one_piece(const struct slr_hosts *h, bool all, size_t bytes);

/* The next piece: `pull` waits until its memory is free. */
enum slr_status slr_hosts_sums_begin(struct slr_hosts *h, CUstream pull);

/* Where the sum goes that this host has of the piece for slr_hosts_to_step(). */
CUdeviceptr slr_hosts_sum_at(const struct slr_hosts *h, int step);

struct slr_hosts_sum {
    const struct slr_call *call; /* of the inside, of which SLIPRING_TRACE tells the rail's part */
    const struct slr_reduce *reduce;
    enum slr_reduce_type type;
    size_t elem, bytes; /* of an element, of the piece */
    float divisor;
    CUdeviceptr own; /* this host's sum, and the result */
};

/* Exchanges the sums, each behind its `summed`, and adds what has come; then slr_hosts_behind() with the half's event. */
ncclResult_t slr_hosts_sum(struct slr_hosts *h, const struct slr_hosts_sum *s);

/* Of an all-reduce: completes a sum of the host's ranks, which stands on `pull`, in place. */
ncclResult_t slr_hosts_sum_all(struct slr_hosts *h, CUstream pull, CUdeviceptr sum, size_t count, ncclDataType_t type,
                               ncclRedOp_t op);

/* Nothing uses it any more. */
void slr_hosts_sums_close(struct slr_hosts *h);

/* ---- duel.c ---- */

/* False: no memory. It goes with its owner. */
bool slr_hosts_duel_make(struct slr_hosts *h);

/* All ranks have agreed on so many rounds; 0: nothing is tried, all goes over hosts. */
void slr_hosts_duel_open(struct slr_hosts *h, uint32_t rounds);

/* Of a call of the whole that may go over hosts, once for each, in order: SLR_R_HOSTS, or why NCCL has it. Uniform. May
 * wait for the other ranks (duel.c). */
enum slr_reason slr_hosts_way(const struct slr_call *call);

/* Whoever waits for the shadow's turn or for what is asked goes on. True: it was in use, and is good for nothing but an
 * abort. */
bool slr_hosts_duel_end(struct slr_hosts *h);

/* Its events, in the context of the device. */
void slr_hosts_duel_close(struct slr_hosts *h);

/* ---- hosts.c ---- */

/* With one use, and locks; NULL: no memory. It ends by slr_hosts_end() (lifecycle/lifecycle_impl.h); the rail's stream,
 * events and memory go with the last use, which may be that of an inside whose streams have been held up. */
struct slr_hosts *slr_hosts_new(void);

/* The split of h's shadow from `from`'s has failed here, as not all ranks came in time. NCCL may still make it, and write
 * its handle into h: which stays until from's shadow has ended, and what has been made ends then. */
void slr_hosts_owe(struct slr_hosts *from, struct slr_hosts *h);
void slr_hosts_owed(struct slr_hosts *from);

void slr_hosts_hold(struct slr_hosts *h);
void slr_hosts_put(struct slr_hosts *h); /* NULL: nothing */

/* Before the real call. */
void slr_hosts_split_begin(struct slr_hosts_split *split, struct slr_comm *parent, int color, int key);

/* Whatever has come of it. Of no such one: nothing. */
void slr_hosts_split_over(struct slr_hosts_split *split);

/* Of a call of the whole that its size leaves to the ring: SLR_R_HOSTS, or why NCCL has it. Uniform, but for captures and
 * regions, which all ranks have to make alike there. */
enum slr_reason slr_hosts_has(const struct slr_call *call);

/* The calls of the inside that a call of the whole is; at most SLR_HOSTS in `out`, `comm` is the inside, whose use is the
 * caller's. When its ring does not take them it is one, which NCCL does. */
unsigned slr_hosts_calls(const struct slr_call *call, struct slr_comm *inside, bool ring, struct slr_call *out);

/* Of a call of the whole outside of groups: SLIPRING_VERIFY has it compared. Numbers it. Uniform. */
bool slr_hosts_verify_due(struct slr_call *call);

/* The inside fails with what NCCL answers between hosts, `r`, which it returns. */
ncclResult_t slr_hosts_failed(struct slr_comm *inside, ncclResult_t r);

/* The call's stream comes behind what is on the rail's, and what comes behind it elsewhere is told. Records `event`. */
ncclResult_t slr_hosts_behind(const struct slr_call *call, CUevent event);

/* As slr_gather_entry, of a call of the inside; before all of a group's. */
ncclResult_t slr_hosts_enter(struct slr_comm *inside, CUstream stream, CUcontext from);
ncclResult_t slr_hosts_enter_call(const struct slr_call *call);

/* What the program's ncclCommGetAsyncError is to be told besides: an error of the rail's, or of the inside's. */
ncclResult_t slr_hosts_error(const struct slr_comm *whole);

#endif
