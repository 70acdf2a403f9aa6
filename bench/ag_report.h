/* SPDX-License-Identifier: Apache-2.0 */
/* The results of a run, as a table and as JSON. */
#ifndef AG_REPORT_H
#define AG_REPORT_H

#include "ag_options.h"
#include "ag_shared.h"

/* How the ranks are run: "processes", "threads" or "environment". */
void ag_report_table(const struct ag_options *options, const struct ag_shared *shared, const char *how);

/* Writes options->json. Returns 0, or -1 after a message. */
int ag_report_json(const struct ag_options *options, const struct ag_shared *shared, const char *how,
                   enum ag_status status);

/* Where every rank is, on stderr. */
void ag_report_places(const struct ag_shared *shared);

#endif
