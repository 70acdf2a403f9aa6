/* SPDX-License-Identifier: Apache-2.0 */
/* COMMAND, as far as it can be known without running it: wrappers that only change the environment
 * are looked through, scripts lead to their interpreter. */
#ifndef SLR_TOOLS_DOCTOR_PROGRAM_H
#define SLR_TOOLS_DOCTOR_PROGRAM_H

#include <limits.h>
#include "tools/doctor/elf.h"

struct doctor_program {
    char *const *argv;     /* behind wrappers such as env */
    char given[PATH_MAX];  /* the file of argv[0]; "": not found */
    char file[PATH_MAX];   /* what the kernel starts in the end: that, or the script's interpreter */
    int error;             /* errno of what failed */
    bool clears;           /* a wrapper clears the environment */
    char python[PATH_MAX]; /* the Python interpreter that is started; "": none */
    struct doctor_elf elf; /* of `file` */
};

void doctor_program_find(struct doctor_program *p, char *const *argv);
void doctor_program_close(struct doctor_program *p);

/* The last part of a path. */
const char *doctor_base_name(const char *path);

#endif
