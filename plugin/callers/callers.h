/* SPDX-License-Identifier: Apache-2.0 */
/* Who makes the calls: SLIPRING_CALLERS gives calls of collectives.def a name in the program's terms, the NVTX
 * ranges around the call (injection.c) or the native frames that it comes from.
 *
 * The folder's door; it knows no communicator and uses base/ only. Lists of names are shared with the tools.
 *
 * The way of a name:
 *
 *   call, on the program's thread    slr_caller_now: the name, as a number that stands for it
 *   likewise                         the line `caller` of its shape, if the name is new there (calls/collective.c)
 *   the call's place is noted        the number is kept beside the call's place (places/places.h)
 *   house-keeping thread             the line `caller_place`, if the name is new among those of the place
 *
 * Only with SLIPRING_LOG of info or more, which the lines need: where a call is logged anyway, one comparison; else
 * nothing is done, whatever the setting. */
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

/* The name is the shape's. True: the text is what is new, to be logged (names.c). */
bool slr_caller_of_shape(uint64_t shape, uint64_t caller, char buf[SLR_CALLER_TEXT]);

/* Lines for one site or shape, at most: a bound on what names.c calls new. */
enum { SLR_CALLER_LINES = 64 };

/* What the calls of one site have been called from: a short list of names.
 *
 * A name is taken as it is while there is room. Then names that differ in one number only become one with a * in its
 * place: in the place of that number that unites most of them, so that eight of step 1 > layer 3, step 1 > layer 4,
 * step 2 > layer 3, ... become step * > layer 3, step * > layer 4. Where no single number unites any, all that differ
 * do.
 *
 * A number is a run of digits, or a *, so that what is generalised can be added to another list. Digits behind 0x are
 * none: they are an address.
 *
 * Of names that differ otherwise eight are kept; after that it is only known that there are more. No locking; the names
 * are the list's. Shared by the library and the tools. */

enum { SLR_NAMES = 8 };
#define SLR_NAMES_MORE "(others)"

struct slr_names {
    char *name[SLR_NAMES];
    unsigned count;
    bool more; /* there were others, or no memory for them */
};

/* What the list says now and has not said before: the name, a generalised one, or SLR_NAMES_MORE. NULL: nothing new.
 * Valid until the next call. */
const char *slr_names_add(struct slr_names *n, const char *name);

void slr_names_close(struct slr_names *n);

/* ---- injection.c: the program's NVTX ranges; for this folder alone ---- */

enum { SLR_RANGES = 64, SLR_RANGE_NAME = 128, SLR_RANGE_DOMAINS = 64 };

/* They return the range's level in its domain, from 0. -1: none is open; no memory. */
int slr_ranges_push(unsigned domain, const char *name);
int slr_ranges_pop(unsigned domain);

/* "outermost > ... > innermost", with "DOMAIN:" before names of other domains than the default one. What does not fit
 * is left out on the outer side. False: none is open, and the text is empty. */
bool slr_ranges_text(char *buf, size_t size);

/* Whether the tool that NVTX_INJECTION64_PATH names is this library, by the file. */
int slr_injection_named(const char *path);

#endif
