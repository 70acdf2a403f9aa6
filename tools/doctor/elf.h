/* SPDX-License-Identifier: Apache-2.0 */
/* What a program file is: read from its headers, never run. */
#ifndef SLR_TOOLS_DOCTOR_ELF_H
#define SLR_TOOLS_DOCTOR_ELF_H

#include <stdbool.h>
#include <stddef.h>

struct doctor_elf {
    const unsigned char *bytes; /* the file, mapped */
    size_t size;
    bool elf;     /* else: something else, perhaps a script */
    bool broken;  /* an ELF file whose headers lead outside of it */
    bool native;  /* class and machine are this program's */
    bool dynamic; /* has an interpreter or a dynamic section with needed libraries */
    char interp[256];
    char needed[4096];  /* SONAMEs, each followed by a space */
    char runpath[4096]; /* RUNPATH, else RPATH */
};

/* 0 or -errno. */
int doctor_elf_open(struct doctor_elf *e, const char *path);
void doctor_elf_close(struct doctor_elf *e);

/* The first place of a text in the file, or NULL. */
const char *doctor_elf_text(const struct doctor_elf *e, const char *text);
/* Whether the SONAME of a needed library begins with `stem`. */
bool doctor_elf_needs(const struct doctor_elf *e, const char *stem);

#endif
