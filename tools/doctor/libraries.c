/* SPDX-License-Identifier: Apache-2.0 */
/* COMMAND's shared libraries, as its loader finds them: it is asked to list them, which runs nothing
 * of the program. */
#include <stdlib.h>
#include <string.h>
#include "tools/common/child.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/program.h"

/* "libx.so.1 => not found", and "FILE: version `V' not found (required by FILE)". */
static void check_line(struct doctor *d, const char *line)
{
    const char *arrow = strstr(line, " => not found");
    if (arrow)
        doctor_add(d, DOCTOR_COMMAND_LIBRARIES, DOCTOR_FAIL, "%.*s is not found: the program can not start",
                   (int)(arrow - line), line);
    else if (strstr(line, "not found (required by") || strstr(line, "error while loading"))
        doctor_add(d, DOCTOR_COMMAND_LIBRARIES, DOCTOR_FAIL, "%s", line);
}

/* The name of the file has the version of NVIDIA's libraries. */
static void tell_vendors(struct doctor *d, const char *line)
{
    static const char *const stems[] = {"libcudart.so", "libcublas.so", "libcublasLt.so"};
    const char *arrow = strstr(line, " => /");
    for (size_t i = 0; arrow && i < sizeof stems / sizeof *stems; i++)
        if (strncmp(line, stems[i], strlen(stems[i])) == 0) {
            char path[PATH_MAX], whole[PATH_MAX];
            snprintf(path, sizeof path, "%.*s", (int)strcspn(arrow + 4, " "), arrow + 4);
            doctor_add(d, DOCTOR_COMMAND_LIBRARIES, DOCTOR_OK, "%.*s is %s", (int)(arrow - line), line,
                       realpath(path, whole) ? whole : path);
        }
}

static void each_line(struct doctor *d, const char *list, void (*look)(struct doctor *, const char *))
{
    char *copy = strdup(list), *save = NULL;
    for (char *line = copy ? strtok_r(copy, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
        look(d, line + strspn(line, " \t"));
    free(copy);
}

void doctor_check_libraries(struct doctor *d, const struct doctor_program *p)
{
    static char list[65536];
    char *const argv[] = {"env", "LD_TRACE_LOADED_OBJECTS=1", (char *)p->elf.interp, (char *)p->file, NULL};
    if (!*p->elf.interp)
        return;
    struct child_end end = child_capture(argv, 1, list, sizeof list, d->limit_ms);
    if (end.how != CHILD_ENDED || (end.value != 0 && !strstr(list, "not found"))) {
        doctor_add(d, DOCTOR_COMMAND_LIBRARIES, DOCTOR_UNKNOWN, "%s does not list them", p->elf.interp);
        return;
    }
    each_line(d, list, check_line);
    if (!doctor_has(d, DOCTOR_COMMAND_LIBRARIES))
        doctor_add(d, DOCTOR_COMMAND_LIBRARIES, DOCTOR_OK, "all that %s is linked to are found",
                   doctor_base_name(p->file));
    each_line(d, list, tell_vendors);
}
