/* SPDX-License-Identifier: Apache-2.0 */
/* What the log says of call sites. All lines are at level info and bounded in number: 16 phases and
 * 256 changes for each communicator, 3 changes for each buffer of a site, 64 sites at the end; the
 * counts in the last line are whole.
 */
#ifndef SLR_PLUGIN_SITES_SYMMETRY_LOG_H
#define SLR_PLUGIN_SITES_SYMMETRY_LOG_H

#include "plugin/sites/phases.h"

/* "symmetry_phase": a phase has been entered. */
void slr_symmetry_log_phase(const struct slr_phases *p);

/* "symmetry": call `call` changed the state of a site's buffer. */
void slr_symmetry_log_change(struct slr_phases *p, unsigned site, enum slr_side side, uint64_t call);

/* "caller_site", when it is new who has made a call of the site: callers/names.h bounds these, and SLR_CALLER_LINES; in the
 * phases that are told. */
void slr_symmetry_log_caller(struct slr_phases *p, unsigned site, uint64_t call, uint64_t caller);

/* "symmetry_site" for each buffer of the present phase's sites, and "symmetry_end" with what
 * phases.h counts. */
void slr_symmetry_log_end(const struct slr_phases *p, unsigned symmetric, uint64_t breaks);

#endif
