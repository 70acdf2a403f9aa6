/* SPDX-License-Identifier: Apache-2.0 */
/* Who makes the calls of a site, as SLIPRING_CALLERS names them. */
#include "tools/report/report.h"

const struct column caller_columns[2] = {{"call site", false, false}, {"called from", false, true}};

void report_caller_rows(struct table *t, const char *site, const struct slr_names *names)
{
    for (unsigned i = 0; i < names->count; i++) {
        table_cell(t, "%s", site);
        table_cell(t, "%s", names->name[i]);
    }
    if (names->more) {
        table_cell(t, "%s", site);
        table_cell(t, "%s", SLR_NAMES_MORE);
    }
}

void report_callers(struct report *r, struct table *t)
{
    if (t->cells.n == 0)
        return;
    out_say(r->o, "Who makes the calls, by `SLIPRING_CALLERS`: NVTX ranges from the outermost to the innermost (>), or "
                  "frames from the innermost on (<). A * stands for numbers that differ from call to call.");
    out_table(r->o, t);
}
