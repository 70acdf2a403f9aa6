/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/model/input.h"

int input_read(struct input *in, char *const *paths, size_t n, unsigned wanted)
{
    struct model *m = &in->model;
    *in = (struct input){.reader = {.problems.to = stderr, .fn = model_add, .ctx = m}};
    model_init(m, &in->reader);
    log_read_paths(&in->reader, paths, n);
    log_read_end(&in->reader);
    if (m->processes.n == 0) {
        if (!in->reader.empty)
            fputs("slipring: no line of a log; expected logs that were written with SLIPRING_LOG_FORMAT=json, as "
                  "`slipring run --record DIR` does\n",
                  stderr);
        return TOOL_NOTHING;
    }
    model_finish(m);
    if (m->twice)
        fprintf(stderr, "slipring: %llu lines were there twice and were used once\n", (unsigned long long)m->twice);
    if (wanted > m->runs.n) {
        fprintf(stderr, "slipring: there is no run %u, the logs are of %zu\n", wanted, m->runs.n);
        return TOOL_USAGE;
    }
    in->run = wanted ? wanted - 1 : (uint32_t)m->runs.n - 1;
    if (m->runs.n > 1 && !wanted)
        fprintf(stderr, "slipring: the logs are of %zu runs; the latest is used, --run 1 to --run %zu choose another\n",
                m->runs.n, m->runs.n);
    return TOOL_GOOD;
}

int input_status(const struct input *in)
{
    return in->reader.problems.lines || in->reader.problems.files ? TOOL_SOME : TOOL_GOOD;
}
