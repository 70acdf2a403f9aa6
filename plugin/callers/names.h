/* SPDX-License-Identifier: Apache-2.0 */
/* What the calls of one site have been called from: a short list of names.
 *
 * A program names its layers, "layer 3", and its steps, "step 17". A call site that is a place in the program's
 * iteration has one layer and every step; one that is a shape has all layers. So a name is taken as it is while there
 * is room. Then names that differ in one number only become one with a * in its place: in the place of that number that
 * unites most of them, so that this
 *
 *   step 1 > layer 3, step 1 > layer 4, step 2 > layer 3, step 2 > layer 4, ... (eight), step 5 > layer 3
 *
 * becomes   step * > layer 3, step * > layer 4. Where no single number unites any, all that differ do.
 *
 * A number is a run of digits, or a *, so that what is generalised can be added to another list. Digits behind 0x are
 * none: they are an address.
 *
 * Of names that differ otherwise eight are kept; after that it is only known that there are more. No locking; the names
 * are the list's. Shared by the library and the tools.
 */
#ifndef SLR_PLUGIN_CALLERS_NAMES_H
#define SLR_PLUGIN_CALLERS_NAMES_H

#include <stdbool.h>

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

#endif
