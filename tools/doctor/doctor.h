/* SPDX-License-Identifier: Apache-2.0 */
/* slipring doctor: what on this machine or in this environment would prevent substitution, or make
 * it slow.
 *
 * A check is a row of checks.def. It adds at least one finding: what is the case, how good that is,
 * and, when it is not good, what to do. Everything that calls a vendor's library runs in a child
 * with a time limit, so that a driver that hangs or crashes is a finding as well and not the end of
 * the tool. */
#ifndef SLR_TOOLS_DOCTOR_H
#define SLR_TOOLS_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "tools/doctor/devices.h"

enum doctor_result { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_UNKNOWN, DOCTOR_RESULTS };

/* Exit status; part of the interface for scripts. 2 is that of wrong usage. */
enum doctor_exit { DOCTOR_EXIT_OK = 0, DOCTOR_EXIT_WARN = 1, DOCTOR_EXIT_FAIL = 3, DOCTOR_EXIT_ERROR = 4 };

enum doctor_id {
#define X(id, ...) DOCTOR_##id,
#include "tools/doctor/checks.def"
#undef X
    DOCTOR_CHECKS
};

struct doctor_row {
    const char *name, *group, *meaning, *advice;
};
extern const struct doctor_row doctor_rows[DOCTOR_CHECKS];
const char *doctor_result_name(enum doctor_result r);

struct doctor_program;

struct doctor_finding {
    enum doctor_id id;
    enum doctor_result result;
    char *text;
    const char *advice; /* static, or `own`; the row's unless the finding has another */
    char *own;
};

struct doctor {
    unsigned limit_ms; /* for each thing that runs in a child */
    struct doctor_finding *finding;
    size_t findings, room;
    const struct doctor_program *program; /* COMMAND looked at; NULL: none */
    const struct doctor_devices *devices; /* what the driver said; never NULL once the checks begin */
};

/* Adds a finding with the row's advice; the text is a printf format. doctor_advise replaces the
 * last one's advice. */
void doctor_add(struct doctor *d, enum doctor_id id, enum doctor_result r, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void doctor_advise(struct doctor *d, const char *advice);
/* `name` behind the others of a list with spaces between them. */
void doctor_name_in(char *list, size_t size, const char *name);
/* Of a /proc or /sys that may be elsewhere; root "": the machine's. */
FILE *doctor_open(const char *root, const char *path);
bool doctor_has(const struct doctor *d, enum doctor_id id);
void doctor_free(struct doctor *d);
enum doctor_exit doctor_exit_status(const struct doctor *d);

/* The checks, by file. */
void doctor_check_devices(struct doctor *d); /* driver and devices; fills d->devices */
void doctor_check_trial(struct doctor *d);   /* what ranks do with each other, tried: control memory to CUDA IPC */
void doctor_check_links(struct doctor *d);
void doctor_check_mps(struct doctor *d);
void doctor_check_sockets(struct doctor *d);
void doctor_check_host(struct doctor *d);
void doctor_check_nccl(struct doctor *d);
void doctor_check_command(struct doctor *d);
/* Of COMMAND, a program that the loader of this machine can take. */
void doctor_check_libraries(struct doctor *d, const struct doctor_program *p);
void doctor_check_variables(struct doctor *d);
void doctor_check_preload(struct doctor *d);
void doctor_check_library(struct doctor *d);
void doctor_check_settings(struct doctor *d);

/* Behind the checks: takes out of the advice what is not installed. */
void doctor_leave_installed(struct doctor *d);

void doctor_print_text(FILE *out, const struct doctor *d);
void doctor_print_json(FILE *out, const struct doctor *d);
void doctor_print_markdown(FILE *out);
/* One line when the library can not be preloaded into the file that COMMAND starts; for `slipring run`. */
void doctor_say_unloadable(FILE *to, char *const *command);
/* The variables' table; shared by the check and the documentation. */
void doctor_print_variables(FILE *out);

#endif
