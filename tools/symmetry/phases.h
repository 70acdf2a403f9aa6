/* SPDX-License-Identifier: Apache-2.0 */
/* From the sequence of a communicator's calls to its call sites.
 *
 *   state        when                                             then
 *   no period    one is confirmed (period.h) by places, or by     a phase of that period; its calls
 *                sizes when 384 calls have shown none by places   so far are taken again, as sites
 *                or the communicator ends
 *   in a phase   a call has another size than its site's, or is   the phase is over, no period
 *                the other operation
 *   in a phase   its period is not confirmed by places any more,  a phase of that period
 *                and another one is; behind calls that are
 *                missing it is as long as nothing denies it
 *
 * A phase begins with the earliest call from which on the sizes fit its period, as far back as 384
 * calls are known. So "since" is a call that may be long past when it is reported. Site i of a
 * phase is every call whose number is i more than the phase's first, modulo the period. A period
 * once adopted stays while it is confirmed, also when a smaller one would do.
 *
 * Least evidence: 16 matches (fewer when the communicator ends), so that a handful of like calls
 * within an iteration is not taken for a period. A longer run of like calls is, until the true
 * period has been seen three times: the phases in between are short-lived and counted.
 *
 * "Rank" is a place in the arrays: of those whose calls are known.
 */
#ifndef SLR_TOOLS_SYMMETRY_PHASES_H
#define SLR_TOOLS_SYMMETRY_PHASES_H

#include "tools/symmetry/period.h"
#include "tools/symmetry/compare.h"

#define SYM_PHASE_KNOWN (3 * SYM_PERIOD_MAX)
#define SYM_PHASE_LEAST 16u

enum sym_evidence { SYM_BY_NOTHING, SYM_BY_PLACES, SYM_BY_SIZES };

/* A phase is over, by the calls or with them; its sites are still there. */
struct sym_phases;
typedef void (*sym_phase_fn)(void *ctx, const struct sym_phases *p);

struct sym_phases {
    int nranks;
    sym_phase_fn over;
    void *ctx;
    uint64_t calls;      /* analysed */
    uint64_t last;       /* call */
    struct sym_use *use; /* [SYM_PHASE_KNOWN][nranks], the latest, by call number */
    uint64_t *token;     /* [1 + nranks], of one call */
    struct sym_period period;
    uint64_t phases; /* so far */
    uint64_t breaks; /* of phases that are over */
    /* The present phase; by nothing: there is none. */
    enum sym_evidence by;
    unsigned length;
    uint64_t first; /* call that is site 0 */
    struct sym_sites sites;
};

/* False: out of memory. */
bool sym_phases_open(struct sym_phases *p, int nranks, sym_phase_fn over, void *ctx);
void sym_phases_close(struct sym_phases *p);

/* Call `call` as the ranks made it: use[nranks], of the same shard. Numbers grow; between two calls
 * with a gap, some have been skipped. */
void sym_phases_take(struct sym_phases *p, uint64_t call, const struct sym_use *use);

/* There are no more calls: what is not confirmed yet counts with less evidence. */
void sym_phases_end(struct sym_phases *p);

/* Sites of the present phase whose receive buffer is symmetric, and all times that a site ceased to
 * be. */
unsigned sym_phases_symmetric(const struct sym_phases *p);
uint64_t sym_phases_breaks(const struct sym_phases *p);

#endif
