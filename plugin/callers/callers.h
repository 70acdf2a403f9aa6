/* SPDX-License-Identifier: Apache-2.0 */
/* Who makes the calls: SLIPRING_CALLERS gives all-gathers and reduce-scatters a name in the program's terms, the NVTX
 * ranges around the call (ranges.h, which injection.h fills) or the native frames that it comes from (stack.h).
 *
 * The folder's door; it knows no communicator and uses base/ only. names.h is shared with the tools.
 *
 * The way of a name:
 *
 *   call, on the program's thread    slr_caller_now: the name, as a number that stands for it
 *   likewise                         the line `caller` of its shape, if the name is new there (gather/decide.c)
 *   the call is recorded             the number is kept beside the call's place (places/places.h)
 *   house-keeping thread             the line `caller_place`, if the name is new among those of the place
 *
 * Only with SLIPRING_LOG of info or more, which the lines need: where a call is logged anyway, one comparison; else
 * nothing is done, whatever the setting.
 *
 * Texts. The latest 1024 different ones of the process are kept, each up to 511 bytes, on the heap; the number of an
 * older one finds none. A program that names its steps makes a new one in each step: what of it reaches the log, and the
 * memory of a site, is bounded by names.h. A text is copied out: no pointer to it leaves the lock.
 *
 * Shapes. 256 of them have names; the calls of others have none by shape, which one line says. In mode stack the frames
 * are taken in the first 256 calls of a shape. After that they are known if all of these came from one place; if not,
 * they go on being taken.
 *
 * Locks: one, innermost, under which nothing is called but the allocator. Fork: the child is switched off before it comes
 * here (util/process.h); its NVTX calls touch no lock. Errors: without memory there is no name.
 */
#ifndef SLR_PLUGIN_CALLERS_CALLERS_H
#define SLR_PLUGIN_CALLERS_CALLERS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/settings.h"

/* SLIPRING_CALLERS */
enum slr_callers { SLR_CALLERS_OFF, SLR_CALLERS_NVTX, SLR_CALLERS_STACK };

enum { SLR_CALLER_TEXT = 512 };

static inline bool slr_callers_on(void)
{
    return __builtin_expect(slr_get(SLR_S_CALLERS) != SLR_CALLERS_OFF, 0);
}

/* Slipring is the tool that NVTX loads: there is none for its own ranges (base/nvtx.h). */
bool slr_callers_tool(void);

/* When the first communicator is made: what stands in the way of the names, once. */
void slr_callers_tell(void);

/* The name of the call that this thread is in, of a shape; 0: none. Under no lock. */
uint64_t slr_caller_now(uint64_t shape);

/* Its text; false: it is not known any more. */
bool slr_caller_text(uint64_t caller, char buf[SLR_CALLER_TEXT]);

/* The name is the shape's. True: the text is what is new, to be logged (names.h). */
bool slr_caller_of_shape(uint64_t shape, uint64_t caller, char buf[SLR_CALLER_TEXT]);

/* Lines for one site or shape, at most: a bound on what names.h calls new. */
enum { SLR_CALLER_LINES = 64 };

#endif
