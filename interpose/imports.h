/* SPDX-License-Identifier: Apache-2.0 */
/* How a loaded object's calls of hooked functions are bound: read from its dynamic relocations and the
 * addresses that the dynamic linker has put in their places. */
#ifndef SLR_INTERPOSE_IMPORTS_H
#define SLR_INTERPOSE_IMPORTS_H

#include <link.h>

enum slr_imports {
    SLR_IMPORTS_WELL,    /* to slipring, to nothing that is hooked, or to what somebody else has put in front of it */
    SLR_IMPORTS_LATER,   /* lazily: some are not bound yet */
    SLR_IMPORTS_LOADING, /* the linker has not come to all of them */
    SLR_IMPORTS_PAST     /* some to the very function that slipring stands for */
};

/* The real functions, looked up anew: libraries are found one after the other. Not thread-safe. Returns how
 * many there are. */
unsigned slr_imports_begin(void);

/* Then of each object. *symbol: by which import it is so; stays as it is when all is well. */
enum slr_imports slr_imports_of(const struct dl_phdr_info *object, const char **symbol);

#endif
