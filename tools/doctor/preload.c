/* SPDX-License-Identifier: Apache-2.0 */
/* What else is preloaded. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/doctor/doctor.h"
#include "tools/doctor/program.h"

static const struct {
    const char *word; /* in the name of the file */
    enum doctor_result result;
    const char *text;
} known[] = {
    {"libslipring", DOCTOR_OK, "slipring itself; the launcher replaces it by its own"},
    {"mscclpp", DOCTOR_WARN, "MSCCL++ replaces NCCL's calls as well: one of the two gets none of them"},
    {"vgpu", DOCTOR_WARN, "HAMi-core watches device memory: its accounts do not know of memory that slipring keeps"},
    {"ctran", DOCTOR_WARN, "replaces NCCL's calls as well"},
    {"jemalloc", DOCTOR_OK, "an allocator of host memory; harmless"},
    {"tcmalloc", DOCTOR_OK, "an allocator of host memory; harmless"},
    {"mimalloc", DOCTOR_OK, "an allocator of host memory; harmless"},
    {"san.so", DOCTOR_OK, "a sanitizer's runtime; harmless"},
    {"libclang_rt", DOCTOR_OK, "a sanitizer's runtime; harmless"},
};

static void judge(struct doctor *d, const char *entry, const char *from)
{
    const char *name = doctor_base_name(entry);
    if (strchr(entry, '/') && access(entry, R_OK) != 0) {
        doctor_add(d, DOCTOR_PRELOAD, DOCTOR_WARN, "%s (%s): %s", entry, from, strerror(errno));
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(name, known[i].word)) {
            doctor_add(d, DOCTOR_PRELOAD, known[i].result, "%s (%s): %s", entry, from, known[i].text);
            return;
        }
    doctor_add(d, DOCTOR_PRELOAD, DOCTOR_OK, "%s (%s): not known here", entry, from);
}

static void judge_list(struct doctor *d, const char *list, const char *separators, const char *from)
{
    char *copy = strdup(list ? list : ""), *save = NULL;
    for (char *entry = copy ? strtok_r(copy, separators, &save) : NULL; entry;
         entry = strtok_r(NULL, separators, &save))
        judge(d, entry, from);
    free(copy);
}

/* Two copies hook each other's calls. The launcher leaves one; LD_PRELOAD by hand may not. */
static void count_copies(struct doctor *d, const char *list)
{
    unsigned copies = 0;
    for (const char *at = list; at && (at = strstr(at, "libslipring.so")); at++)
        copies++;
    if (copies > 1)
        doctor_add(d, DOCTOR_PRELOAD, DOCTOR_WARN, "LD_PRELOAD names libslipring.so %u times", copies);
}

void doctor_check_preload(struct doctor *d)
{
    char line[4096];
    FILE *in = fopen("/etc/ld.so.preload", "re");
    while (in && fgets(line, sizeof line, in)) {
        line[strcspn(line, "#")] = '\0';
        judge_list(d, line, " \t\n:", "/etc/ld.so.preload");
    }
    if (in)
        fclose(in);
    judge_list(d, getenv("LD_PRELOAD"), " :", "LD_PRELOAD");
    count_copies(d, getenv("LD_PRELOAD"));
    const char *audit = getenv("LD_AUDIT");
    if (audit && *audit)
        doctor_add(d, DOCTOR_PRELOAD, DOCTOR_WARN, "%s (LD_AUDIT): what it binds elsewhere is not seen", audit);
    if (!doctor_has(d, DOCTOR_PRELOAD))
        doctor_add(d, DOCTOR_PRELOAD, DOCTOR_OK, "nothing else is preloaded");
}
