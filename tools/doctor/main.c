#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/doctor/doctor.h"
#include "tools/doctor/program.h"

static const char usage_text[] =
    "usage: slipring doctor [--json] [--limit SECONDS] [--] [COMMAND [ARG]...]\n"
    "       slipring doctor --markdown\n"
    "\n"
    "Says what on this machine and in this environment would prevent slipring from substituting all-gathers, or make\n"
    "it slow, and what to do. COMMAND is looked at (which NCCL it gets, whether a library can be preloaded into it),\n"
    "not run. Run it in the environment, and in the container, of a rank. docs/doctor.md lists the checks.\n"
    "\n"
    "--json      one JSON object\n"
    "--limit S   time limit of each thing that is tried with a vendor's library [30]\n"
    "--markdown  prints the table of the checks and ends\n"
    "\n"
    "Exit status: 0 all is well (or not known), 1 warnings, 2 something would prevent substitution, 3 wrong usage or "
    "an\n"
    "error of this tool.\n";

struct options {
    bool json, markdown;
    unsigned limit_ms;
    char *const *command;
};

static int wrong(const char *what, const char *which)
{
    fprintf(stderr, "slipring doctor: %s%s%s (see --help)\n", what, *which ? ": " : "", which);
    return DOCTOR_EXIT_ERROR;
}

static int take_limit(struct options *o, const char *text)
{
    char *end;
    unsigned long s = text && isdigit((unsigned char)*text) ? strtoul(text, &end, 10) : 0;
    if (s < 1 || s > 3600 || *end)
        return wrong("--limit takes a whole number of seconds from 1 to 3600, not", text ? text : "nothing");
    o->limit_ms = (unsigned)s * 1000;
    return 0;
}

/* -1: go on; else the exit status. */
static int parse(struct options *o, int argc, char **argv)
{
    int i = 1;
    for (; i < argc && *argv[i] == '-'; i++) {
        int rc = 0;
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return fputs(usage_text, stdout) < 0 ? DOCTOR_EXIT_ERROR : 0;
        if (!strcmp(argv[i], "--json"))
            o->json = true;
        else if (!strcmp(argv[i], "--markdown"))
            o->markdown = true;
        else if (!strcmp(argv[i], "--limit"))
            rc = take_limit(o, i + 1 < argc ? argv[++i] : NULL);
        else if (!strncmp(argv[i], "--limit=", 8))
            rc = take_limit(o, argv[i] + 8);
        else
            rc = wrong("there is no option", argv[i]);
        if (rc)
            return rc;
    }
    o->command = i < argc ? &argv[i] : NULL;
    return -1;
}

/* A check that was not come to has a finding as well, so that programs find all of them. */
static void fill_open(struct doctor *d)
{
    for (int id = DOCTOR_DRIVER; id <= DOCTOR_IPC_VMM; id++)
        if (!doctor_has(d, (enum doctor_id)id))
            doctor_add(d, (enum doctor_id)id, DOCTOR_UNKNOWN, "not tried: see what failed before");
    if (!doctor_has(d, DOCTOR_NCCL_VERSION))
        doctor_add(d, DOCTOR_NCCL_VERSION, DOCTOR_UNKNOWN, "no NCCL to ask");
    if (!doctor_has(d, DOCTOR_NCCL_FUNCTIONS))
        doctor_add(d, DOCTOR_NCCL_FUNCTIONS, DOCTOR_UNKNOWN, "no NCCL to ask");
}

static void check_all(struct doctor *d)
{
    doctor_check_devices(d);
    doctor_check_trial(d);
    doctor_check_links(d);
    doctor_check_mps(d);
    doctor_check_sockets(d);
    doctor_check_host(d);
    doctor_check_nccl(d);
    doctor_check_command(d);
    doctor_check_variables(d);
    doctor_check_preload(d);
    doctor_check_library(d);
    doctor_check_settings(d);
    fill_open(d);
}

static int examine(const struct options *o)
{
    struct doctor d = {.limit_ms = o->limit_ms};
    struct doctor_program program;
    if (o->command) {
        doctor_program_find(&program, o->command);
        d.program = &program;
    }
    check_all(&d);
    (o->json ? doctor_print_json : doctor_print_text)(stdout, &d);
    int status = doctor_exit_status(&d);
    if (fflush(stdout) != 0)
        status = wrong("the report could not be written", "");
    if (o->command)
        doctor_program_close(&program);
    doctor_free(&d);
    return status;
}

int main(int argc, char **argv)
{
    struct options o = {.limit_ms = 30000};
    int rc = parse(&o, argc, argv);
    if (rc >= 0)
        return rc;
    if (o.markdown) {
        doctor_print_markdown(stdout);
        return fflush(stdout) ? DOCTOR_EXIT_ERROR : 0;
    }
    return examine(&o);
}
