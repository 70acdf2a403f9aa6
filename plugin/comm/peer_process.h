/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the processes of peers still live: one process descriptor (pidfd) for each process,
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
#ifndef SLR_PLUGIN_COMM_PEER_PROCESS_H
#define SLR_PLUGIN_COMM_PEER_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct slr_peer_process;

/* The process is alive, or has been until a moment ago. NULL: no memory; it never counts as gone
 * then. */
struct slr_peer_process *slr_peer_process_watch(int32_t pid, uint64_t number);

bool slr_peer_process_gone(struct slr_peer_process *p);    /* NULL: false */
void slr_peer_process_unwatch(struct slr_peer_process *p); /* NULL: nothing */

#endif
