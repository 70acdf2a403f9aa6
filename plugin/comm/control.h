/* SPDX-License-Identifier: Apache-2.0 */
/* The control block: one page-aligned piece of shared memory for each communicator, mapped by every
 * rank of the host.
 *
 *   struct slr_control     the decision word
 *   struct slr_post[n]     what each rank says of itself; written by that rank only
 *   flag words             kernels/flags.h; registered with CUDA by each rank; with NCCL's turns
 *   slr_transfer[n][n][..] plugin/transfer/transfer.h; written by the two ranks of each pair
 *   slr_trials_shared      plugin/trials/trials.h; what rank 0 has chosen, and each rank has measured
 *
 * It is an anonymous memfd handed from process to process (plugin/bootstrap/bootstrap.h), so it has
 * no name and ends with its last user, also after kill -9. Each rank keeps the descriptor: by that the
 * user's `slipring top` finds the block in /proc, and reads it.
 *
 * Who writes what: `decision` by compare-and-swap from undecided, once, by anybody; post[r] by rank
 * r. A rank's state only moves forward:
 *
 *   EMPTY -> POSTED -> READY -> LEFT
 *            POSTED -> LEFT
 *                      READY -> FAILED -> LEFT
 */
#ifndef SLR_PLUGIN_COMM_CONTROL_H
#define SLR_PLUGIN_COMM_CONTROL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "base/counters.h"
#include "base/real.h"
#include "base/status.h"
#include "base/settings.h"
#include "cache/handles.h"
#include "cache/staging.h"
#include "kernels/ring.h"
#include "plugin/comm/agreed_change.h"
#include "plugin/comm/key.h"
#include "plugin/comm/shared.h"
#include "plugin/comm/trial_row.h"

/* ---- exports.h ---- */

enum slr_exported_state { SLR_EXPORTED_EMPTY, SLR_EXPORTED_OPEN, SLR_EXPORTED_REVOKED };

/* In an acknowledgement. OPENING: the owner must not give the block back, and does not name it
 * yet. */
#define SLR_ACK_OPENING (UINT64_C(1) << 63)
#define SLR_ACK_REFUSED (UINT64_C(1) << 62)

/* In the owner's post. */
struct slr_exported {
    _Atomic uint32_t state;
    _Atomic uint64_t generation; /* written after the rest */
    _Atomic uint64_t last_call;  /* REVOKED: later calls do not name it */
    struct slr_export export;
};

/* ---- transfer.h ---- */

enum slr_transfer_state { SLR_TRANSFER_NONE, SLR_TRANSFER_OWNER_FIRST, SLR_TRANSFER_READER_FIRST, SLR_TRANSFER_BOTH };

struct slr_transfer {
    _Alignas(64) _Atomic uint64_t head;    /* call, skipped, state: transfer.c */
    struct slr_remote_place owner, reader; /* written by that side before it posts */
    struct slr_remote_place expected;      /* by the reader: where it takes the owner's for */
    uint32_t owner_alone, reader_alone;    /* likewise: passed_alone.h */
};

/* ---- what a rank says of itself ---- */

enum slr_rank_state {
    SLR_RANK_EMPTY,
    SLR_RANK_POSTED, /* has said what it is */
    SLR_RANK_READY,  /* has compared what all are; would commit */
    SLR_RANK_FAILED, /* its communicator is in error; does not rely on any flag any more */
    SLR_RANK_LEFT    /* has closed every import; will not touch the block's flags or the peers' memory again */
};

/* For `slipring top`: of the process, but for the last one. */
struct slr_shown {
    uint64_t calls[SLR_COLLECTIVES], moved[SLR_COLLECTIVES];
    uint64_t called_ms;     /* when its last call was noticed, in ms of CLOCK_MONOTONIC; 0: none yet */
    uint64_t staging, kept; /* bytes of device memory that it holds */
    uint64_t ring;          /* calls of the communicator that went over the ring */
};
#define SLR_SHOWN (sizeof(struct slr_shown) / sizeof(uint64_t))

/* connect.h: of the slots of one class. */
struct slr_linked {
    _Atomic uint64_t at;   /* how far it has connected */
    _Atomic uint64_t vote; /* for giving back */
    uint64_t slot;         /* bytes of one of its slots; written before it is MADE, like `staging` */
    struct slr_staging_export staging;
};

struct slr_post {
    _Alignas(64) _Atomic uint32_t state;
    _Atomic uint32_t failed;  /* this rank was FAILED once; stays when it has LEFT */
    _Atomic uint32_t drained; /* FAILED, and nothing of it is in flight any more: writes into nobody's memory */
    /* With `process` written by the root before anybody else maps the block. Equal pids are ranks
     * of one process: bootstrap.c checks that all ranks share one process-id namespace. */
    int32_t pid;
    CUuuid device_uuid;
    uint64_t settings[SLR_S_COUNT]; /* values of the uniform settings */
    uint64_t tune;                  /* of its tuner: what it decides by (tuner.h); 0: it has none */
    uint64_t process;               /* random; a process id comes again */
    int32_t device;                 /* CUdevice, for ranks of the same process */
    uint32_t p2p_off;               /* NCCL_P2P_DISABLE or NCCL_P2P_LEVEL say: no peer-to-peer */
    uint64_t gpu;                   /* a hash of its model's name */
    uint64_t floor;                 /* gathered bytes from which on it would try the ring (trials/find.c) */
    uint32_t captures;              /* it could take gathers into CUDA graphs (connect/connect.h) */
    uint32_t sums;                  /* SLR_SUMS_...: whether it can add (connect/connect.h) */
    uint32_t tries;                 /* rounds in which it would try ways (trials.h); 0: none */
    uint32_t slots_given;           /* SLIPRING_SLOT_BYTES is set there: all slots have that size */
    struct slr_linked linked[SLR_SLOT_CLASSES];
    struct slr_key_offer grown;    /* for those that have this communicator: lifecycle/make.c */
    _Atomic uint64_t passed_alone; /* gathers that it left to NCCL so far << 32 | number of the call that comes next */
    _Atomic uint32_t passed_alone_why;                /* enum slr_reason of the latest of them */
    char name[12];                                    /* the communicator's, as in the log */
    _Atomic uint64_t shown[SLR_SHOWN];                /* a struct slr_shown, at each tick of its watchdog; relaxed */
    struct slr_exported exports[SLR_EXPORTS];         /* its blocks that peers may map */
    _Atomic uint64_t ack[SLR_MAX_RANKS][SLR_EXPORTS]; /* generations of theirs that it has mapped */
};

struct slr_control {
    uint32_t magic;
    int32_t nranks;
    _Atomic uint32_t decision;
    _Alignas(64) _Atomic uint64_t link[SLR_SLOT_CLASSES]; /* connect.h */
    _Atomic uint32_t tune; /* tuner_match.c's decision word, by compare-and-swap from 0, once, by anybody */
    struct slr_post post[];
};

/* ---- what names all of this, and the messages of plugin/bootstrap ---- */

/* Raised by hand when a word or a message comes to mean something else in the same place. */
#define SLR_CONTROL_MEANING 3

/* Of the rows of the settings, whose values a post has in their order. */
#define SLR_ADD_SETTING(id, name, kind, def, min, max, choices, scope, ...)                                            \
    +(SLR_S_##id + 1) * (int)(sizeof(name) + 64 * sizeof(choices) + 8 * SLR_KIND_##kind + SLR_SCOPE_##scope)
enum {
    SLR_CONTROL_SETTINGS = 0
#define X SLR_ADD_SETTING
#include "base/settings.def"
#undef X
};

#define SLR_FOLD(sum, n) (((sum) ^ (uint32_t)(n)) * UINT32_C(16777619)) /* FNV-1a, by words */
#define SLR_FOLD4(sum, a, b, c, d) SLR_FOLD(SLR_FOLD(SLR_FOLD(SLR_FOLD(sum, a), b), c), d)
#define SLR_FOLD8(sum, a, b, c, d, e, f, g, h) SLR_FOLD4(SLR_FOLD4(sum, a, b, c, d), e, f, g, h)
#define SLR_IN_POST(field) offsetof(struct slr_post, field)
#define SLR_IN_CHOICE(field) offsetof(struct slr_trial_choice, field)

#define SLR_FOLD_COUNTS(sum)                                                                                           \
    SLR_FOLD8(sum, SLR_R_COUNT, SLR_COLLECTIVES, SLR_MAX_RANKS, SLR_TRANSFERS, SLR_FLAG_KINDS, SLR_FLAG_LINE,          \
              SLR_TURNS, SLR_TRIAL_SITES)
#define SLR_FOLD_SIZES(sum)                                                                                            \
    SLR_FOLD8(sum, sizeof(struct slr_control), sizeof(struct slr_post), sizeof(struct slr_exported),                   \
              sizeof(struct slr_transfer), sizeof(struct slr_trials_shared), sizeof(struct slr_trial_post),            \
              sizeof(struct slr_trial_row), sizeof(struct slr_trial_known))
#define SLR_FOLD_POST(sum)                                                                                             \
    SLR_FOLD8(SLR_FOLD8(sum, SLR_IN_POST(failed), SLR_IN_POST(drained), SLR_IN_POST(pid), SLR_IN_POST(settings),       \
                        SLR_IN_POST(tune), SLR_IN_POST(process), SLR_IN_POST(device), SLR_IN_POST(p2p_off)),           \
              SLR_IN_POST(gpu), SLR_IN_POST(floor), SLR_IN_POST(captures), SLR_IN_POST(sums), SLR_IN_POST(tries),      \
              SLR_IN_POST(slots_given), SLR_IN_POST(linked), SLR_IN_POST(exports))
#define SLR_FOLD_CHOICE(sum)                                                                                           \
    SLR_FOLD4(sum, SLR_IN_CHOICE(again), SLR_IN_CHOICE(chosen), SLR_IN_CHOICE(ended), SLR_IN_CHOICE(row))

/* Ranks for which it differs can not read each other's words: the agreement refuses. It follows from
 * what is above, so that it changes with the settings and with each field that moves others. */
#define SLR_CONTROL_MAGIC_OF(meaning, settings)                                                                        \
    SLR_FOLD_CHOICE(                                                                                                   \
        SLR_FOLD_POST(SLR_FOLD_SIZES(SLR_FOLD_COUNTS(SLR_FOLD(SLR_FOLD(UINT32_C(2166136261), meaning), settings)))))
#define SLR_CONTROL_MAGIC SLR_CONTROL_MAGIC_OF(SLR_CONTROL_MEANING, SLR_CONTROL_SETTINGS)
_Static_assert(SLR_CONTROL_MAGIC != 0, "a block that nobody has written has 0");

/* The decision word: 0 undecided, 1 commit, else a refusal with its reason and the rank that it is
 * about. */
#define SLR_UNDECIDED 0u
#define SLR_COMMIT 1u
#define SLR_REFUSED 0x80000000u

static inline uint32_t slr_refusal(enum slr_reason why, int rank)
{
    return SLR_REFUSED | (uint32_t)why << 16 | (uint32_t)(rank & 0xffff);
}

static inline enum slr_reason slr_refusal_reason(uint32_t word)
{
    return (enum slr_reason)(word >> 16 & 0x7fff);
}

static inline int slr_refusal_rank(uint32_t word)
{
    return (int)(word & 0xffff);
}

#define SLR_CONTROL_PAGE 4096u

static inline size_t slr_control_flags_at(int nranks)
{
    size_t head = sizeof(struct slr_control) + (size_t)nranks * sizeof(struct slr_post);
    return (head + SLR_CONTROL_PAGE - 1) / SLR_CONTROL_PAGE * SLR_CONTROL_PAGE;
}

static inline size_t slr_control_transfers_at(int nranks)
{
    size_t before = slr_control_flags_at(nranks) + slr_flags_bytes(nranks);
    return (before + SLR_CONTROL_PAGE - 1) / SLR_CONTROL_PAGE * SLR_CONTROL_PAGE;
}

static inline size_t slr_control_trials_at(int nranks)
{
    size_t transfers = (size_t)nranks * (size_t)nranks * SLR_TRANSFERS * sizeof(struct slr_transfer);
    return (slr_control_transfers_at(nranks) + transfers + SLR_CONTROL_PAGE - 1) / SLR_CONTROL_PAGE * SLR_CONTROL_PAGE;
}

static inline size_t slr_control_bytes(int nranks)
{
    size_t all = slr_control_trials_at(nranks) + sizeof(struct slr_trials_shared) +
                 (size_t)nranks * sizeof(struct slr_trial_post);
    return (all + SLR_CONTROL_PAGE - 1) / SLR_CONTROL_PAGE * SLR_CONTROL_PAGE;
}

#endif
