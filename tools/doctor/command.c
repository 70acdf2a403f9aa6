/* SPDX-License-Identifier: Apache-2.0 */
/* COMMAND: what it is, whether the library can be preloaded into it, what is linked into it, what
 * it starts. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "tools/doctor/doctor.h"
#include "tools/doctor/program.h"

static void check_found(struct doctor *d, const struct doctor_program *p)
{
    if (!*p->given)
        doctor_add(d, DOCTOR_COMMAND, DOCTOR_FAIL, "%s: %s", p->argv[0], strerror(p->error));
    else if (p->error)
        doctor_add(d, DOCTOR_COMMAND, DOCTOR_FAIL, "%s, started by %s: %s", p->given, p->file, strerror(p->error));
    else if (strcmp(p->given, p->file) != 0)
        doctor_add(d, DOCTOR_COMMAND, DOCTOR_OK, "%s, a script of %s", p->given, p->file);
    else
        doctor_add(d, DOCTOR_COMMAND, DOCTOR_OK, "%s%s", p->given, p->elf.elf ? "" : ", a script of the shell");
}

/* Who is the owner anyway gets no privilege from it. */
static bool privileged(const char *file, const char **how)
{
    struct stat st;
    char caps[64];
    *how = "";
    if (stat(file, &st) == 0 && (st.st_mode & S_ISUID) && st.st_uid != getuid())
        *how = "set-user-id";
    else if (stat(file, &st) == 0 && (st.st_mode & S_ISGID) && st.st_gid != getgid())
        *how = "set-group-id";
    else if (getxattr(file, "security.capability", caps, sizeof caps) > 0)
        *how = "has file capabilities";
    return **how != '\0';
}

static const char *not_preloadable(const struct doctor_program *p, const char **what)
{
    *what = "";
    if (p->elf.broken)
        return "is not a whole ELF file";
    if (!p->elf.native)
        return "is for another machine than the library";
    if (privileged(p->file, what))
        return "is privileged: LD_PRELOAD is ignored";
    if (!p->elf.dynamic)
        return "is linked statically: nothing can be preloaded into it";
    if (strstr(p->elf.interp, "ld-musl"))
        return "is for musl: the library needs glibc";
    return NULL;
}

void doctor_say_unloadable(FILE *to, char *const *command)
{
    struct doctor_program p;
    const char *what = "", *why = NULL;
    doctor_program_find(&p, command);
    if (*p.given && !p.error && p.elf.elf)
        why = not_preloadable(&p, &what);
    if (why)
        fprintf(to, "slipring: %s %s%s%s%s, so nothing is substituted in it\n", p.file, why, *what ? " (" : "", what,
                *what ? ")" : "");
    doctor_program_close(&p);
}

static void check_preload(struct doctor *d, const struct doctor_program *p)
{
    const char *what, *why = not_preloadable(p, &what);
    if (!p->elf.elf)
        return;
    if (p->clears) {
        doctor_add(d, DOCTOR_COMMAND_PRELOAD, DOCTOR_FAIL, "env -i clears LD_PRELOAD");
        doctor_advise(d, "Put the launcher behind it: env -i slipring run -- PROGRAM.");
    } else if (why)
        doctor_add(d, DOCTOR_COMMAND_PRELOAD, DOCTOR_FAIL, "%s %s%s%s%s", p->file, why, *what ? " (" : "", what,
                   *what ? ")" : "");
    else
        doctor_add(d, DOCTOR_COMMAND_PRELOAD, DOCTOR_OK, "dynamically linked, started by %s",
                   *p->elf.interp ? p->elf.interp : "a loader that it does not name");
}

/* Texts that a library holds, so that they are found in stripped programs as well. */
static const struct {
    const char *text, *needed, *what;
    enum doctor_result result;
} linked_in[] = {
    {"NCCL version 2.", "libnccl.so",
     "NCCL is linked into it: its calls of NCCL can not be replaced, nothing is substituted", DOCTOR_FAIL},
    {"CUBLAS_LOGINFO_DBG", "libcublas.so",
     "cuBLAS is linked into it: gathers are substituted, but its GEMMs are not fused", DOCTOR_WARN},
    {"CUBLASLT_LOG_LEVEL", "libcublasLt.so",
     "cuBLASLt is linked into it: gathers are substituted, but its GEMMs are not fused", DOCTOR_WARN},
    {"cudaErrorInsufficientDriver", "libcudart.so",
     "the CUDA runtime is linked into it, which works: its calls of the driver are seen", DOCTOR_OK},
};

static void check_static(struct doctor *d, const struct doctor_program *p)
{
    if (!p->elf.elf)
        return;
    for (size_t i = 0; i < sizeof linked_in / sizeof *linked_in; i++)
        if (!doctor_elf_needs(&p->elf, linked_in[i].needed) && doctor_elf_text(&p->elf, linked_in[i].text))
            doctor_add(d, DOCTOR_COMMAND_STATIC, linked_in[i].result, "%s", linked_in[i].what);
    if (!doctor_has(d, DOCTOR_COMMAND_STATIC))
        doctor_add(d, DOCTOR_COMMAND_STATIC, DOCTOR_OK, "no vendor library is linked into %s",
                   doctor_base_name(p->file));
}

struct wrapper {
    const char *names; /* each between spaces */
    enum doctor_result result;
    const char *text, *advice;
};
static const struct wrapper wrappers[] = {
    {" mpirun mpiexec mpiexec.hydra orterun prterun ", DOCTOR_WARN,
     "hands LD_PRELOAD to ranks on this host, and to others only when told so",
     "Start each rank through the launcher: mpirun -np 8 slipring run -- PROGRAM (LD_PRELOAD/mpirun.md)."},
    {" srun ", DOCTOR_OK, "hands the environment on, unless --export says otherwise (LD_PRELOAD/srun.md)", ""},
    {" torchrun accelerate ", DOCTOR_OK, "hands the environment to its workers (LD_PRELOAD/torchrun.md)", ""},
    {" deepspeed pdsh parallel-ssh ", DOCTOR_WARN, "hands LD_PRELOAD only to processes on this host",
     "Start each rank through the launcher: COMMAND ... slipring run -- PROGRAM."},
    {" docker podman nerdctl kubectl ", DOCTOR_FAIL, "does not carry the environment into the container",
     "Run the launcher inside: docker run ... /slipring/LD_PRELOAD/slipring run -- PROGRAM "
     "(LD_PRELOAD/containers.md)."},
    {" ssh rsh ", DOCTOR_FAIL, "does not carry the environment to the other host", "ssh HOST slipring run -- PROGRAM"},
    {" sudo su doas pkexec runuser chroot ", DOCTOR_FAIL, "drops LD_PRELOAD, or runs where the library is not",
     "Run the launcher inside: sudo slipring run -- PROGRAM."},
    {" apptainer singularity enroot ", DOCTOR_WARN, "hands the environment on, but the library must be visible inside",
     "Bind the folder of the library into the container, or run the launcher inside (LD_PRELOAD/containers.md)."},
    {" julia ", DOCTOR_WARN,
     "opens libraries with RTLD_DEEPBIND: their calls of CUDA do not come through slipring, so gathers are waited for "
     "at once (bypassed in the log)",
     "Open what calls CUDA with flags of its own: Libdl.dlopen(NAME, RTLD_LAZY | RTLD_LOCAL)."},
    {" compute-sanitizer valgrind rr ", DOCTOR_WARN, "slows the program down so much that times mean nothing",
     "Use it for finding errors only."},
    {" bash sh dash zsh time nice ionice nohup timeout stdbuf numactl taskset setsid nsys ncu gdb ", DOCTOR_OK,
     "hands the environment on; what it starts was not looked at (name that program to have it looked at)", ""},
};

/* True: the program runs elsewhere, and this file is not what is to be preloaded. */
static bool check_wrapper(struct doctor *d, const struct doctor_program *p)
{
    char name[80];
    if (snprintf(name, sizeof name, " %s ", doctor_base_name(p->argv[0])) >= (int)sizeof name)
        return false;
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strstr(wrappers[i].names, name)) {
            doctor_add(d, DOCTOR_COMMAND_WRAPPER, wrappers[i].result, "%s %s", doctor_base_name(p->argv[0]),
                       wrappers[i].text);
            doctor_advise(d, wrappers[i].advice);
            return wrappers[i].result == DOCTOR_FAIL;
        }
    return false;
}

void doctor_check_command(struct doctor *d)
{
    const struct doctor_program *p = d->program;
    if (!p)
        return;
    check_found(d, p);
    bool elsewhere = check_wrapper(d, p);
    if (*p->given && !p->error && !elsewhere) {
        check_preload(d, p);
        check_static(d, p);
        const char *what;
        if (p->elf.elf && !not_preloadable(p, &what))
            doctor_check_libraries(d, p);
    }
}
