/* slipring trace: the logs of all ranks as a trace for Perfetto or chrome://tracing. */
#include <string.h>
#include "tools/model/input.h"
#include "tools/trace/events.h"

static const char usage[] =
    "usage: slipring trace [-o FILE] [--run N] FILE|FOLDER...\n"
    "\n"
    "Reads the logs of all ranks (`slipring run --record DIR` writes them) and writes trace events: a process for each "
    "rank, a thread\n"
    "for each lane, all on one clock. Open FILE in https://ui.perfetto.dev or chrome://tracing.\n"
    "\n"
    "-o     where to; else stdout\n"
    "--run  which run, when the logs are of several, in order of time; else the latest\n"
    "\n"
    "Exit status: 0 all was used, 1 some lines or files could not be, 2 wrong usage, 3 nothing could be used or "
    "written.\n";

static int bad(const char *what, const char *which)
{
    fprintf(stderr, "slipring trace: %s%s; `slipring trace --help` shows how it is called\n", what, which);
    return TOOL_USAGE;
}

struct options {
    const char *out;
    unsigned run;
    char **paths;
    size_t n;
};

/* -1: go on; else the exit status. */
static int parse(struct options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *next = argv[i + 1];
        if (strcmp(word, "-o") == 0 || strcmp(word, "--run") == 0) {
            if (!next || !*next)
                return bad("something is missing behind ", word);
            i++;
            if (word[1] == 'o')
                o->out = next;
            else if (!(o->run = input_run_number(next)))
                return bad("--run takes a number from 1 on, not ", next);
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            fputs(usage, stdout);
            return TOOL_GOOD;
        } else if (strcmp(word, "--") == 0) {
            while (++i < argc)
                o->paths[o->n++] = argv[i];
        } else if (word[0] == '-') {
            return bad("there is no option ", word);
        } else {
            o->paths[o->n++] = argv[i];
        }
    }
    return o->n ? -1 : bad("it needs a log file, or a folder with some", "");
}

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
    FILE *to = output_open(path);
    if (!to)
        return TOOL_NOTHING;
    trace_write(&in->model, &in->model.runs.at[in->run], to);
    return output_close(to, path) ? input_status(in) : TOOL_NOTHING;
}

int main(int argc, char **argv)
{
    struct options o = {.out = "-", .paths = tool_alloc((size_t)argc, sizeof(char *))};
    struct input in;
    int status = parse(&o, argc, argv);
    if (status < 0) {
        status = input_read(&in, o.paths, o.n, o.run);
        if (status == TOOL_GOOD)
            status = write_trace(&in, o.out);
        model_free(&in.model);
    }
    free(o.paths);
    return status;
}
