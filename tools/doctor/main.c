/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "tools/doctor/bundle.h"
#include "tools/doctor/cgroup.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/program.h"

#define OPTIONS_FILE "tools/doctor/options.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

/* A check that was not come to has a finding as well, so that programs find all of them. */
static void fill_open(struct doctor *d)
{
    for (int id = DOCTOR_DRIVER; id <= DOCTOR_ONE_PROCESS; id++)
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
    doctor_check_cgroups(d, "");
    doctor_check_nccl(d);
    doctor_check_command(d);
    doctor_check_variables(d);
    doctor_check_preload(d);
    doctor_check_library(d);
    doctor_check_settings(d);
    fill_open(d);
    doctor_leave_installed(d);
}

static int report(const struct options *o, const struct doctor *d)
{
    (o->json ? doctor_print_json : doctor_print_text)(stdout, d);
    if (fflush(stdout) != 0) {
        fputs("slipring doctor: the report could not be written\n", stderr);
        return DOCTOR_EXIT_ERROR;
    }
    return doctor_exit_status(d);
}

static int examine(const struct options *o, char *const *command)
{
    struct doctor d = {.limit_ms = (unsigned)o->limit * 1000};
    struct doctor_program program;
    struct bundle b;
    if (*o->bundle && !doctor_bundle_begin(&b, o->bundle))
        return DOCTOR_EXIT_ERROR;
    if (*command) {
        doctor_program_find(&program, command);
        d.program = &program;
    }
    check_all(&d);
    int status = !*o->bundle                                   ? report(o, &d)
                 : doctor_bundle_end(&b, &d, &o->logs, o->yes) ? DOCTOR_EXIT_OK
                                                               : DOCTOR_EXIT_ERROR;
    if (d.program)
        doctor_program_close(&program);
    doctor_free(&d);
    return status;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    if (argc > 2 && strcmp(argv[1], "--preloads") == 0) { /* of the launcher, not of people */
        doctor_say_unloadable(stderr, argv + 2);
        return 0;
    }
    int rest = options_parse(option_rows, OPTIONS_FIRST, &o, argc, argv);
    if (rest <= 0)
        return -rest;
    if (o.markdown) {
        doctor_print_markdown(stdout);
        return fflush(stdout) ? DOCTOR_EXIT_ERROR : 0;
    }
    int status = (o.yes || o.logs.count) && !*o.bundle ? options_wrong(option_rows, "--logs and --yes are for --bundle")
                                                       : examine(&o, argv + rest);
    options_free(option_rows, &o);
    return status;
}
