/* SPDX-License-Identifier: Apache-2.0 */
/* The library, loaded as a user's program gets it: through the launcher. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "tools/common/child.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/elf.h"

#define MARK "libslipring version " /* plugin/bootstrap/bootstrap.c puts it into the library */

static void version_in(const char *file, char *out, size_t size)
{
    struct doctor_elf e;
    *out = '\0';
    if (doctor_elf_open(&e, file) == 0) {
        const char *at = doctor_elf_text(&e, MARK);
        size_t left = at ? e.size - (size_t)(at - (const char *)e.bytes) : 0;
        if (left > sizeof MARK)
            snprintf(out, size, "%.*s", (int)strnlen(at + sizeof MARK - 1, left - sizeof MARK), at + sizeof MARK - 1);
    }
    doctor_elf_close(&e);
}

static void check_version(struct doctor *d, const char *file)
{
    char version[64];
    version_in(file, version, sizeof version);
    if (!*version)
        doctor_add(d, DOCTOR_LIBRARY, DOCTOR_WARN,
                   "%s does not say which version it is; these tools are " SLIPRING_VERSION, file);
    else if (strcmp(version, SLIPRING_VERSION) != 0)
        doctor_add(d, DOCTOR_LIBRARY, DOCTOR_FAIL, "%s is version %s, these tools are " SLIPRING_VERSION, file,
                   version);
    else
        doctor_add(d, DOCTOR_LIBRARY, DOCTOR_OK, "%s, version %s", file, version);
}

/* The message of the launcher or of the loader, on one line. */
static void told(struct doctor *d, char *output)
{
    for (char *at = output; *at; at++)
        if (*at == '\n')
            *at = ' ';
    doctor_add(d, DOCTOR_LIBRARY, DOCTOR_FAIL, "it was not loaded: %s",
               *output ? output : "no message from the launcher or the loader");
}

void doctor_check_library(struct doctor *d)
{
    static char output[16384];
    const char *launcher = getenv("SLIPRING_LAUNCHER");
    char *argv[] = {(char *)launcher, "run", "--", "grep", "-m1", "-o", "/.*libslipring.*", "/proc/self/maps", NULL};
    if (!launcher || !*launcher) {
        doctor_add(d, DOCTOR_LIBRARY, DOCTOR_UNKNOWN, "run this as `slipring doctor`: the launcher knows the library");
        return;
    }
    struct child_end end = child_capture(argv, 1, output, sizeof output, d->limit_ms);
    char *path = strchr(output, '/');
    bool mapped = path && (path == output || path[-1] == '\n') && strstr(path, "libslipring");
    if (end.how == CHILD_TIMED_OUT)
        doctor_add(d, DOCTOR_LIBRARY, DOCTOR_FAIL, "a program with the library preloaded did not end");
    else if (!mapped || strstr(output, "cannot be preloaded"))
        told(d, output);
    else {
        path[strcspn(path, "\n")] = '\0';
        check_version(d, path);
    }
}
