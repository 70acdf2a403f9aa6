/* SPDX-License-Identifier: Apache-2.0 */
/* Which libnccl.so.2 the program gets, as the loader would find it for COMMAND; then its version
 * and functions, asked in a child. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/common/child.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/program.h"

#define SONAME "libnccl.so.2"
#define OLDEST 21200 /* ncclCommInitRankConfig and what came with it; older ones miss functions anyway */

struct nccl_facts {
    char file[PATH_MAX], error[512], missing[512], optional[512];
    bool loaded, pnccl;
    int version;
};

struct question {
    char ask[PATH_MAX]; /* what is opened */
    struct nccl_facts said;
};

static void look_up(void *handle, struct nccl_facts *f)
{
    static const struct {
        const char *name;
        bool required;
    } functions[] = {
#define R true
#define O false
#define D(need, fn)
#define N(need, fn) {#fn, need},
#define B(need, fn)
#define T(need, fn)
#include "base/real.def"
#undef R
#undef O
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!dlsym(handle, functions[i].name))
            doctor_name_in(functions[i].required ? f->missing : f->optional,
                           functions[i].required ? sizeof f->missing : sizeof f->optional, functions[i].name);
    f->pnccl = dlsym(handle, "pncclAllGather") != NULL;
}

static void ask(void *data, int index)
{
    struct question *q = data;
    struct nccl_facts *f = &q->said;
    struct link_map *map = NULL;
    ncclResult_t (*version)(int *) = NULL;
    (void)index;
    void *handle = dlopen(q->ask, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        snprintf(f->error, sizeof f->error, "%s", why ? why : "no reason given");
        return;
    }
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map)
        snprintf(f->file, sizeof f->file, "%s", map->l_name);
    look_up(handle, f);
    void *found = dlsym(handle, "ncclGetVersion");
    memcpy(&version, &found, sizeof version);
    if (version && version(&f->version) != ncclSuccess)
        f->version = 0;
    f->loaded = true;
}

/* "libnccl.so.2 => /path/libnccl.so.2 (0x...)" of the loader's list for the program. */
static bool by_loader(const struct doctor *d, const struct doctor_program *p, char *out, size_t size)
{
    static char list[65536];
    char *const argv[] = {(char *)p->elf.interp, "--list", (char *)p->file, NULL};
    struct child_end end = child_capture(argv, 0, list, sizeof list, d->limit_ms);
    char *line = strstr(list, SONAME " => ");
    if (end.how != CHILD_ENDED || !line)
        return false;
    line += strlen(SONAME " => ");
    snprintf(out, size, "%.*s", (int)strcspn(line, " \n"), line);
    return *out == '/';
}

/* NCCL's wheel, in one of the folders where this Python looks for modules; PyTorch's wheels find it
 * there by their run path. */
static bool by_python(const struct doctor *d, const struct doctor_program *p, char *out, size_t size)
{
    static char paths[65536];
    char *const argv[] = {(char *)p->python, "-c", "import sys; print('\\n'.join(sys.path))", NULL};
    char *save = NULL;
    if (child_capture(argv, 0, paths, sizeof paths, d->limit_ms).how != CHILD_ENDED)
        return false;
    for (char *line = strtok_r(paths, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        int n = snprintf(out, size, "%s/nvidia/nccl/lib/" SONAME, line);
        if (n > 0 && (size_t)n < size && access(out, R_OK) == 0)
            return true;
    }
    return false;
}

static const char *choose(const struct doctor *d, char *out, size_t size)
{
    const struct doctor_program *p = d->program;
    bool program = p && *p->given && !p->error && p->elf.elf;
    if (program && *p->python && by_python(d, p, out, size))
        return "of this Python's packages";
    if (program && *p->elf.interp && doctor_elf_needs(&p->elf, SONAME) && by_loader(d, p, out, size))
        return "that COMMAND is linked to";
    snprintf(out, size, "%s", SONAME);
    return "that the loader finds";
}

static void add_version(struct doctor *d, const struct nccl_facts *f)
{
    const int tested = NCCL_VERSION_CODE;
    if (f->version <= 0)
        doctor_add(d, DOCTOR_NCCL_VERSION, DOCTOR_UNKNOWN, "ncclGetVersion does not say");
    else if (f->version < OLDEST)
        doctor_add(d, DOCTOR_NCCL_VERSION, DOCTOR_FAIL, "%d is too old", f->version);
    else if (f->version / 100 != tested / 100)
        doctor_add(d, DOCTOR_NCCL_VERSION, DOCTOR_WARN, "%d.%d.%d is %s than the tested %d.%d.%d", f->version / 10000,
                   f->version / 100 % 100, f->version % 100, f->version < tested ? "older" : "newer", NCCL_MAJOR,
                   NCCL_MINOR, NCCL_PATCH);
    else
        doctor_add(d, DOCTOR_NCCL_VERSION, DOCTOR_OK, "%d.%d.%d, tested with %d.%d", f->version / 10000,
                   f->version / 100 % 100, f->version % 100, NCCL_MAJOR, NCCL_MINOR);
}

static void add_functions(struct doctor *d, const struct nccl_facts *f)
{
    if (*f->missing)
        doctor_add(d, DOCTOR_NCCL_FUNCTIONS, DOCTOR_FAIL, "missing: %s", f->missing);
    else if (!f->pnccl)
        doctor_add(d, DOCTOR_NCCL_FUNCTIONS, DOCTOR_WARN, "it has no pnccl names: perhaps not NCCL but a stand-in");
    else if (*f->optional)
        doctor_add(d, DOCTOR_NCCL_FUNCTIONS, DOCTOR_OK, "all that are needed; not in this version: %s", f->optional);
    else
        doctor_add(d, DOCTOR_NCCL_FUNCTIONS, DOCTOR_OK, "all that slipring knows are there");
}

static void add_end(struct doctor *d, const char *file, struct child_end end)
{
    if (end.how == CHILD_TIMED_OUT)
        doctor_add(d, DOCTOR_NCCL, DOCTOR_FAIL, "%s was not loaded within %u s", file, d->limit_ms / 1000);
    else
        doctor_add(d, DOCTOR_NCCL, DOCTOR_FAIL, "%s crashes when it is loaded", file);
}

void doctor_check_nccl(struct doctor *d)
{
    struct question *q = child_shared(sizeof *q);
    struct child_end end;
    const char *which = choose(d, q->ask, sizeof q->ask);
    child_run(ask, q, 1, d->limit_ms, &end);
    const struct nccl_facts *f = &q->said;
    if (end.how != CHILD_ENDED || end.value != 0) {
        add_end(d, q->ask, end);
        return;
    }
    if (!f->loaded) {
        doctor_add(d, DOCTOR_NCCL, DOCTOR_FAIL, "%s", f->error);
        return;
    }
    doctor_add(d, DOCTOR_NCCL, DOCTOR_OK, "%s, the one %s", f->file, which);
    add_version(d, f);
    add_functions(d, f);
}
