/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that come from this one: its children, theirs, and so on, as /proc shows them at the
 * moment. A process whose parent has ended is among them only when this one is a subreaper
 * (PR_SET_CHILD_SUBREAPER); its group and session do not matter. */
#ifndef SLR_TOOLS_TREE_H
#define SLR_TOOLS_TREE_H

#include <stddef.h>

/* Sends a signal to each; 0: to none. How many there are that have not ended, or that this process
 * has to wait for. */
size_t tree_signal(int number);

#endif
