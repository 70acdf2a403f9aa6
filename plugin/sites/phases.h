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
 *                and another one is
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
 * All ranks see the same calls and come to the same sites, unless one of them had to skip calls.
 */
#ifndef SLR_PLUGIN_SITES_PHASES_H
#define SLR_PLUGIN_SITES_PHASES_H

#include "plugin/sites/period.h"
#include "plugin/sites/sites.h"

#define SLR_PHASE_KNOWN (3 * SLR_PERIOD_MAX)
#define SLR_PHASE_LEAST 16u

enum slr_evidence { SLR_BY_NOTHING, SLR_BY_PLACES, SLR_BY_SIZES };

struct slr_phases {
    const char *comm; /* for the log */
    int crank, nranks;
    uint64_t calls, skipped; /* analysed, and not */
    uint64_t last;           /* call */
    struct slr_use *use;     /* [SLR_PHASE_KNOWN][nranks], the latest, by call number */
    uint64_t *token;         /* [1 + nranks], of one call */
    struct slr_period period;
    uint64_t phases; /* so far */
    uint64_t breaks; /* of phases that are over */
    /* The present phase; by nothing: there is none. */
    enum slr_evidence by;
    unsigned length;
    uint64_t first; /* call that is site 0 */
    struct slr_sites sites;
    unsigned lines; /* of changes, logged so far */
};

/* False: out of memory. */
bool slr_phases_open(struct slr_phases *p, const char *comm, int crank, int nranks);
void slr_phases_close(struct slr_phases *p);

/* Call `call` as the ranks made it: use[nranks], of the same shard. Numbers grow; between two calls
 * with a gap, some have been skipped. */
void slr_phases_take(struct slr_phases *p, uint64_t call, const struct slr_use *use);

/* There are no more calls: what is not confirmed yet counts with less evidence. */
void slr_phases_end(struct slr_phases *p);

/* Sites of the present phase whose receive buffer is symmetric, and all times that a site ceased to
 * be. */
unsigned slr_phases_symmetric(const struct slr_phases *p);
uint64_t slr_phases_breaks(const struct slr_phases *p);

#endif
