/* SPDX-License-Identifier: Apache-2.0 */
/* slipring trace: the logs of all ranks as a trace for Perfetto or chrome://tracing. */
#include <string.h>
#include "tools/common/job.h"
#include "tools/common/output.h"
#include "tools/model/input.h"
#include "tools/trace/events.h"

#define OPTIONS_FILE "tools/trace/options.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

static bool traced(const struct model *m, uint32_t run)
{
    for (size_t i = 0; i < m->members.n; i++) {
        const struct member *b = &m->members.at[i];
        if (m->comms.at[b->comm].run == run && b->gathers.n + b->spans.n + b->collectives.n > 0)
            return true;
    }
    return false;
}

static int write_trace(const struct input *in, const char *path)
{
    if (!traced(&in->model, in->run)) {
        fputs("slipring trace: these logs have no trace lines; `slipring run --record DIR` records them\n", stderr);
        return TOOL_NOTHING;
    }
    struct output out;
    if (!output_open(&out, path))
        return TOOL_NOTHING;
    trace_write(&in->model, &in->model.runs.at[in->run], out.to);
    return output_close(&out) ? input_status(in) : TOOL_NOTHING;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct input in;
    int rest = options_parse(option_rows, OPTIONS_ANYWHERE, &o, argc, argv);
    if (rest <= 0)
        return -rest;
    if (rest == argc)
        return options_wrong(option_rows, "it needs a log file, or a folder with some");
    if (strcmp(o._o, "-") != 0 && !job_can_write("slipring trace", o._o))
        return TOOL_NOTHING;
    int status = input_read(&in, argv + rest, (size_t)(argc - rest), (unsigned)o.run);
    if (status == TOOL_GOOD)
        status = write_trace(&in, o._o);
    model_free(&in.model);
    return status;
}
