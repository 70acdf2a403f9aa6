/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/doctor/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCRIPTS 5 /* scripts as interpreters of scripts; the kernel allows fewer */

const char *doctor_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool runnable(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    if (!S_ISREG(st.st_mode)) {
        errno = EACCES;
        return false;
    }
    return access(path, X_OK) == 0;
}

/* As execvp. The reason of a file that was there counts more than that of one that was not. */
static int find_in_path(const char *name, char *out, size_t size)
{
    const char *path = getenv("PATH");
    int error = ENOENT;
    if (!path)
        path = "/bin:/usr/bin";
    for (size_t len; *path; path += len + (path[len] == ':')) {
        len = strcspn(path, ":");
        int n = snprintf(out, size, "%.*s%s%s", (int)len, path, len ? "/" : "", name);
        if (n > 0 && (size_t)n < size && runnable(out))
            return 0;
        if (errno != ENOENT && errno != ENOTDIR)
            error = errno;
    }
    *out = '\0';
    return error;
}

static int find_file(const char *name, char *out, size_t size)
{
    if (!strchr(name, '/'))
        return find_in_path(name, out, size);
    int n = snprintf(out, size, "%s", name);
    int error = n < 0 || (size_t)n >= size ? ENAMETOOLONG : runnable(out) ? 0 : errno;
    if (error)
        *out = '\0';
    return error;
}

/* "#! /usr/bin/env python3 -u": the interpreter, or what env starts. False: no such line. */
static bool interpreter(const struct doctor_elf *e, char *out, size_t size)
{
    char line[256], *save = NULL;
    if (e->size < 3 || memcmp(e->bytes, "#!", 2) != 0)
        return false;
    size_t len = e->size - 2 < sizeof line - 1 ? e->size - 2 : sizeof line - 1;
    memcpy(line, e->bytes + 2, len);
    line[len] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    char *word = strtok_r(line, " \t", &save);
    if (word && strcmp(doctor_base_name(word), "env") == 0) {
        do
            word = strtok_r(NULL, " \t", &save);
        while (word && (*word == '-' || strchr(word, '=')));
    }
    return word && snprintf(out, size, "%s", word) < (int)size;
}

static bool is_python(const char *file)
{
    const char *name = doctor_base_name(file);
    return strncmp(name, "python", 6) == 0 || strncmp(name, "pypy", 4) == 0;
}

static void follow(struct doctor_program *p)
{
    char next[PATH_MAX];
    snprintf(p->file, sizeof p->file, "%s", p->given);
    for (int i = 0; i <= SCRIPTS; i++) {
        /* Version managers put a shell script of the interpreter's name in its place. */
        if (!*p->python && is_python(p->file))
            snprintf(p->python, sizeof p->python, "%s", p->file);
        p->error = -doctor_elf_open(&p->elf, p->file);
        if (p->error || p->elf.elf || !interpreter(&p->elf, next, sizeof next))
            return;
        doctor_elf_close(&p->elf);
        p->error = find_file(next, p->file, sizeof p->file);
        if (p->error) {
            snprintf(p->file, sizeof p->file, "%s", next);
            return;
        }
    }
    p->error = ELOOP;
}

/* Behind "env [-i] [-u NAME] [NAME=VALUE]...". */
static char *const *behind_env(struct doctor_program *p, char *const *argv)
{
    while (*argv && strcmp(doctor_base_name(*argv), "env") == 0) {
        char *const *at = argv + 1;
        for (; *at && (**at == '-' || strchr(*at, '=')); at++) {
            p->clears |= !strcmp(*at, "-i") || !strcmp(*at, "-") || !strcmp(*at, "--ignore-environment");
            if ((!strcmp(*at, "-u") || !strcmp(*at, "-C")) && at[1])
                at++;
        }
        if (!*at)
            return argv;
        argv = at;
    }
    return argv;
}

void doctor_program_find(struct doctor_program *p, char *const *argv)
{
    *p = (struct doctor_program){.argv = argv};
    p->argv = behind_env(p, argv);
    p->error = find_file(p->argv[0], p->given, sizeof p->given);
    if (p->error)
        return;
    follow(p);
}

void doctor_program_close(struct doctor_program *p)
{
    doctor_elf_close(&p->elf);
}
