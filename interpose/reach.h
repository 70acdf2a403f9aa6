/* SPDX-License-Identifier: Apache-2.0 */
/* Finds objects that bypass slipring (base/real.h).
 *
 * An object that is loaded as usual binds to slipring: preloaded, it comes before the vendors' libraries
 * in the scope that all objects begin with. Other ways:
 *
 *   RTLD_DEEPBIND           the object, and what is loaded for it, begin with their own scope
 *   a namespace (dlmopen)   its objects can not be looked at; they count as bypassing
 *   before slipring         it was not preloaded but opened later, into the global scope
 *   the program hands out   dlopen or dlsym of the C library's own handle: not followed
 *
 * Of what is linked with -Bsymbolic to definitions of its own nothing is to be found: a copy of NCCL or of
 * cuBLAS in it is not the one that is followed, and reaches the driver by the hooked dlsym.
 *
 * How it shows. Imports of such an object have been bound to the very function that slipring stands for
 * (enum imports, reach.c): to the driver's, NCCL's or cuBLAS's, or to the C library's dlsym, with which it can get
 * these. Where imports are bound lazily nothing shows yet: in what was loaded since something has been opened with
 * RTLD_DEEPBIND and not been looked at, and in all if slipring was opened late, that counts as bypassing.
 *
 * When it is looked. Each gather compares the linker's count of loaded objects with that of the last look,
 * and looks at the new ones if it differs. That is before the gather may stay pending. What is pending
 * already when an object is loaded is another matter: its first code may come behind the gather. So
 *
 *   1. a thread that is about to open with RTLD_DEEPBIND counts itself in slr_reach_word (dlopen is
 *      hooked), and then joins all that is pending;
 *   2. a gather becomes pending, and then its thread looks at that word: not 0, and it is joined at once.
 *
 * Whichever comes first, no gather is pending when the object's code, its constructors included, begins.
 * Objects are in the linker's list, and bound, before the first of their constructors runs. The hook
 * jumps to the real dlopen and never comes back, as that needs the caller's return address; so the thread
 * is counted until it is *seen* again: it looks something up (dlsym), opens something else, or gathers. Each
 * of these shows that its object is in the list and bound, or that it could not be opened; then the count
 * of objects tells. A thread that is never seen again costs the overlap, nothing else.
 *
 * What is pending under a lock that another thread holds for longer than a moment, as that waits in the
 * driver, is not waited for here: that could be for ever. An object that is opened just then, and whose code
 * works on that very stream before the other thread's call has ended, is not served.
 *
 * Thread-safe; the lock is innermost but for the linker's, which is held for moments.
 */
#ifndef SLR_INTERPOSE_REACH_H
#define SLR_INTERPOSE_REACH_H

/* Once, when NCCL is first used: from now on gathers ask (slr_reach_looks). */
void slr_reach_install(void);

/* The calling thread is not opening anything any more. Early code. */
void slr_reach_seen(void);

#endif
