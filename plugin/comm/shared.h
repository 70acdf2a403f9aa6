/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a communicator that its peers use as well, and that outlives it until they have closed their imports
 * (memory/exports.h): the control block, staging, the context; and whether the peers' processes live. */
#ifndef SLR_PLUGIN_COMM_SHARED_H
#define SLR_PLUGIN_COMM_SHARED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/real.h"
#include "base/status.h"
#include "cache/staging.h"
#include "kernels/flags.h"

struct slr_control;
struct slr_peer_process;

#define SLR_EXPORTS 128   /* blocks that a rank exports, at most */
#define SLR_TRANSFERS 256 /* calls that one of two ranks can be ahead of the other */

/* A place in a block that its owner exports; generation 0: none. */
struct slr_remote_place {
    uint64_t generation, offset;
};

/* A descriptor that stays open, and what it was when it was made: a program may close what it did not open, and have
 * something of its own under the number then. */
struct slr_kept {
    int fd; /* -1: none */
    dev_t dev;
    ino_t ino;
};
struct slr_kept slr_keep(int fd); /* peer_process.c, these */
bool slr_kept_is_there(const struct slr_kept *k);
void slr_kept_close(struct slr_kept *k);

struct slr_shared {
    struct slr_control *control; /* NULL: none mapped */
    size_t bytes;
    struct slr_kept file; /* of the control block: `slipring top` opens it in /proc */
    bool registered;      /* with CUDA, in `ctx` */
    bool stuck; /* a peer's memory could not be closed: this rank never says LEFT, only its process's end does */
    int rank, nranks;
    CUdevice device;
    CUcontext ctx;   /* the device's primary context, retained; NULL: none */
    uint32_t resets; /* of the device, when that was: slr_shared_gone() */
    struct slr_staging staging[SLR_SLOT_CLASSES];
    /* Set when the communicator ends: generations of the blocks that peers may still have mapped,
     * and how many pieces were published. */
    uint64_t pinned[SLR_EXPORTS];
    uint32_t issued;
    struct slr_peer_process *peer_watch[SLR_MAX_RANKS]; /* shared.h; NULL: none, it is of this process */
    _Atomic bool peer_dead[SLR_MAX_RANKS];
};

/* The context of *s has been reset since it was retained (cache/blocks.h): nothing in it is
 * touched any more. */
bool slr_shared_gone(const struct slr_shared *s);

/* Whether the peer is another rank of this process. */
bool slr_shared_same_process(const struct slr_shared *s, int peer);

/* Whether any two ranks are of one process, as far as the processes' numbers tell. Uniform. */
bool slr_shared_any_in_one_process(const struct slr_shared *s);

/* Whether the peer's streams may still copy into this rank's memory. False of this rank itself. */
bool slr_shared_may_be_written(const struct slr_shared *s, int peer);

/* Looks whether the processes of the peers still live; fills peer_dead. */
void slr_shared_watch_peers(struct slr_shared *s);

/* Opens the watches on the peers' processes, whose ids the control block holds from the start. */
void slr_shared_open_watches(struct slr_shared *s);

/* Makes the communicator's context current and lets this thread use it while others capture; pairs
 * with slr_shared_leave. */
enum slr_status slr_shared_enter(const struct slr_shared *s);
enum slr_status slr_context_enter(CUcontext ctx);
void slr_shared_leave(void);

/* The same for work that is only enqueued, which no capture of others forbids. Cheaper. The two
 * forms nest. */
enum slr_status slr_shared_work_begin(const struct slr_shared *s);
void slr_shared_work_end(void);

/* ---- peer_process.c: whether the processes of peers still live ----
 *
 * One process descriptor (pidfd) for each process,
 * however many communicators and ranks it shares with this one.
 *
 * A process is known by its random number (control.h: post.process), because process ids come
 * again: another process with the same id has another number and gets a descriptor of its own. A
 * watch is counted; the last unwatch closes the descriptor. Once a process is gone it stays gone.
 *
 * Any thread may call any of these; the lock is held for the list and for opening and closing a
 * descriptor, never while anything is waited for, and no other lock is taken under it.
 *
 * Without a descriptor (a kernel or a sandbox without pidfd_open, or a program that has closed what
 * it does not know) a process is gone when there is none with its id; a zombie counts as alive
 * then.
 */

/* The process is alive, or has been until a moment ago. NULL: no memory; it never counts as gone
 * then. */
struct slr_peer_process *slr_peer_process_watch(int32_t pid, uint64_t number);

bool slr_peer_process_gone(struct slr_peer_process *p);    /* NULL: false */
void slr_peer_process_unwatch(struct slr_peer_process *p); /* NULL: nothing */

#endif
