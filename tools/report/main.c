/* slipring report: what the logs of all ranks say, as text and as a page. */
#include <string.h>
#include <unistd.h>
#include "tools/report/report.h"
#include "tools/model/input.h"

static const char usage[] = "usage: slipring report [--text FILE|-] [--html FILE|-] [--run N] FILE|FOLDER...\n"
                            "\n"
                            "Reads the logs of all ranks (SLIPRING_LOG_FORMAT=json; `slipring run --record DIR` writes "
                            "them, with times) and says what was\n"
                            "decided and why, what was gathered, how much of it was hidden, and which ranks differ.\n"
                            "\n"
                            "--text   the report as text; this is what happens without --html, to stdout\n"
                            "--html   one page with a timeline, that needs nothing else\n"
                            "--run    which run, when the logs are of several, in order of time; else the latest\n"
                            "--fields which lines and fields of the log are read, as Markdown\n"
                            "\n"
                            "Of a folder every *.jsonl and *.log is read. Exit status: 0 all was used, 1 some lines or "
                            "files could not be, 2 wrong usage,\n"
                            "3 nothing could be used or written.\n";

struct options {
    const char *text, *html;
    unsigned run;
    char **paths;
    size_t n;
};

static int bad(const char *what, const char *which)
{
    fprintf(stderr, "slipring report: %s%s; `slipring report --help` shows how it is called\n", what, which);
    return TOOL_USAGE;
}

/* The value of an option: behind '=', or the next word. NULL: there is none. */
static const char *value_of(const char *name, char **argv, int *i)
{
    size_t len = strlen(name);
    if (argv[*i][len] == '=')
        return argv[*i] + len + 1;
    return argv[*i + 1] ? argv[++*i] : NULL;
}

static bool is(const char *word, const char *name)
{
    size_t len = strlen(name);
    return strncmp(word, name, len) == 0 && (!word[len] || word[len] == '=');
}

/* -1: go on; else the exit status. */
static int parse(struct options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char **to = is(argv[i], "--text") ? &o->text : is(argv[i], "--html") ? &o->html : NULL, *number;
        if (to) {
            *to = value_of("--text", argv, &i); /* both names have this length */
            if (!*to || !**to)
                return bad("a file is missing behind ", to == &o->text ? "--text" : "--html");
        } else if (is(argv[i], "--run")) {
            number = value_of("--run", argv, &i);
            if (!number || !(o->run = input_run_number(number)))
                return bad("--run takes a number from 1 on, not ", number ? number : "nothing");
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return TOOL_GOOD;
        } else if (strcmp(argv[i], "--fields") == 0) {
            log_print_interface(stdout);
            return TOOL_GOOD;
        } else if (strcmp(argv[i], "--") == 0) {
            while (++i < argc)
                o->paths[o->n++] = argv[i];
        } else if (argv[i][0] == '-') {
            return bad("there is no option ", argv[i]);
        } else {
            o->paths[o->n++] = argv[i];
        }
    }
    return o->n ? -1 : bad("it needs a log file, or a folder with some", "");
}

static bool write_one(struct input *in, const char *path, bool html)
{
    struct report r = {.m = &in->model, .index = in->run, .run = &in->model.runs.at[in->run]};
    FILE *to = output_open(path);
    const char *plain = getenv("NO_COLOR");
    if (!to)
        return false;
    report_write(&r, html, !html && to == stdout && isatty(1) && !(plain && *plain), to);
    return output_close(to, path);
}

int main(int argc, char **argv)
{
    struct options o = {.paths = tool_alloc((size_t)argc, sizeof(char *))};
    struct input in;
    int status = parse(&o, argc, argv);
    if (status < 0) {
        status = input_read(&in, o.paths, o.n, o.run);
        if (status == TOOL_GOOD) {
            bool good = (!o.text && o.html) || write_one(&in, o.text ? o.text : "-", false);
            good &= !o.html || write_one(&in, o.html, true);
            status = good ? input_status(&in) : TOOL_NOTHING;
        }
        model_free(&in.model);
    }
    free(o.paths);
    return status;
}
