/* SPDX-License-Identifier: Apache-2.0 */
/* The NVTX ranges that a thread has open, by name.
 *
 * Each thread has its own stack, which only it touches: a push and a pop take no lock and wait for nobody, and the text is
 * read by the same thread, in its call of NCCL. The stack's memory comes from the heap at the thread's first push, and is
 * freed when the thread ends. After fork the child has that of the thread that forked; nothing is shared.
 *
 * Domains have stacks of their own in NVTX: a pop takes the innermost range of its domain. Here all are in one stack in
 * the order of their pushes, so that the text shows how they nest. A pop without a push changes nothing. Ranges that are
 * pushed by NVTX's extension for payloads are not seen; where the domain has another one open, their pop ends that.
 *
 * Bounds: 64 ranges with 127 bytes of name each, cut between characters. Ranges above are counted by domain, no more, so
 * that pushes and pops stay in balance; once one of a domain is only counted, those that the domain pushes on top are,
 * too. 62 domains have a name; all further ones are one domain.
 */
#ifndef SLR_PLUGIN_CALLERS_RANGES_H
#define SLR_PLUGIN_CALLERS_RANGES_H

#include <stdbool.h>
#include <stddef.h>

enum { SLR_RANGES = 64, SLR_RANGE_NAME = 128, SLR_RANGE_DOMAINS = 64 };

/* A domain's number by its name, below SLR_RANGE_DOMAINS, made when there is none; 0 is the default domain's. Any
 * thread, without a lock: two threads that make the same one at once may get two numbers. */
unsigned slr_ranges_domain(const char *name);

/* They return the range's level in its domain, from 0. -1: none is open; no memory. */
int slr_ranges_push(unsigned domain, const char *name);
int slr_ranges_pop(unsigned domain);

/* "outermost > ... > innermost", with "DOMAIN:" before names of other domains than the default one. What does not fit is
 * left out on the outer side. False: none is open, and the text is empty. */
bool slr_ranges_text(char *buf, size_t size);

#endif
