/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/doctor/elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* `bytes` at `offset` of the file, or NULL when they are not all inside. */
static const void *at(const struct doctor_elf *e, uint64_t offset, uint64_t bytes)
{
    return offset <= e->size && bytes <= e->size - offset ? e->bytes + offset : NULL;
}

/* A terminated text; NULL when it does not end inside. */
static const char *text_at(const struct doctor_elf *e, uint64_t offset)
{
    const char *text = at(e, offset, 1);
    return text && memchr(text, 0, e->size - offset) ? text : NULL;
}

static bool header(const struct doctor_elf *e, unsigned i, ElfW(Phdr) * out)
{
    ElfW(Ehdr) h;
    memcpy(&h, e->bytes, sizeof h);
    const void *p = at(e, h.e_phoff + (uint64_t)i * h.e_phentsize, sizeof *out);
    if (!p || h.e_phentsize < sizeof *out)
        return false;
    memcpy(out, p, sizeof *out);
    return true;
}

static unsigned headers(const struct doctor_elf *e)
{
    ElfW(Ehdr) h;
    memcpy(&h, e->bytes, sizeof h);
    return h.e_phnum;
}

/* Where a virtual address lies in the file; UINT64_MAX: nowhere. */
static uint64_t offset_of(const struct doctor_elf *e, uint64_t address)
{
    ElfW(Phdr) p;
    for (unsigned i = 0; i < headers(e) && header(e, i, &p); i++)
        if (p.p_type == PT_LOAD && address >= p.p_vaddr && address - p.p_vaddr < p.p_filesz)
            return address - p.p_vaddr + p.p_offset;
    return UINT64_MAX;
}

/* The value of the n-th entry with a tag. */
static bool dynamic_entry(const struct doctor_elf *e, const ElfW(Phdr) * dyn, ElfW(Sxword) tag, unsigned n,
                          uint64_t *value)
{
    ElfW(Dyn) entry;
    for (uint64_t i = 0; (i + 1) * sizeof entry <= dyn->p_filesz; i++) {
        const void *p = at(e, dyn->p_offset + i * sizeof entry, sizeof entry);
        if (!p)
            return false;
        memcpy(&entry, p, sizeof entry);
        if (entry.d_tag == DT_NULL)
            return false;
        if (entry.d_tag == tag && n-- == 0) {
            *value = entry.d_un.d_val;
            return true;
        }
    }
    return false;
}

static const char *dynamic_text(const struct doctor_elf *e, const ElfW(Phdr) * dyn, ElfW(Sxword) tag, unsigned n)
{
    uint64_t table, offset;
    if (!dynamic_entry(e, dyn, tag, n, &offset) || !dynamic_entry(e, dyn, DT_STRTAB, 0, &table))
        return NULL;
    uint64_t base = offset_of(e, table);
    return base == UINT64_MAX || offset > e->size ? NULL : text_at(e, base + offset);
}

static void read_dynamic(struct doctor_elf *e, const ElfW(Phdr) * dyn)
{
    const char *text;
    size_t used = 0;
    for (unsigned n = 0; (text = dynamic_text(e, dyn, DT_NEEDED, n)) && used < sizeof e->needed; n++)
        used += (size_t)snprintf(e->needed + used, sizeof e->needed - used, "%s ", text);
    if ((text = dynamic_text(e, dyn, DT_RUNPATH, 0)) || (text = dynamic_text(e, dyn, DT_RPATH, 0)))
        snprintf(e->runpath, sizeof e->runpath, "%s", text);
    e->dynamic |= *e->needed != '\0';
}

static void read_headers(struct doctor_elf *e)
{
    ElfW(Phdr) p;
    for (unsigned i = 0; i < headers(e); i++) {
        if (!header(e, i, &p)) {
            e->broken = true;
            return;
        }
        const char *text = p.p_type == PT_INTERP ? text_at(e, p.p_offset) : NULL;
        e->broken |= p.p_type == PT_INTERP && !text;
        if (text) {
            snprintf(e->interp, sizeof e->interp, "%s", text);
            e->dynamic = true;
        }
        if (p.p_type == PT_DYNAMIC)
            read_dynamic(e, &p);
    }
}

/* The machine that this tool, and so the library beside it, was built for. */
static void own_machine(ElfW(Ehdr) * h)
{
    memset(h, 0, sizeof *h);
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, h, sizeof *h) != (ssize_t)sizeof *h)
        h->e_machine = EM_NONE;
    if (fd >= 0)
        close(fd);
}

static void examine(struct doctor_elf *e)
{
    ElfW(Ehdr) h, own;
    e->elf = e->size >= EI_NIDENT && memcmp(e->bytes, ELFMAG, SELFMAG) == 0;
    if (!e->elf)
        return;
    own_machine(&own);
    if (e->size < sizeof h) {
        e->broken = true;
        return;
    }
    memcpy(&h, e->bytes, sizeof h);
    e->native =
        own.e_machine == EM_NONE || (h.e_ident[EI_CLASS] == own.e_ident[EI_CLASS] && h.e_machine == own.e_machine);
    if (e->native)
        read_headers(e);
}

int doctor_elf_open(struct doctor_elf *e, const char *path)
{
    struct stat st;
    *e = (struct doctor_elf){.bytes = NULL};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    int rc = fstat(fd, &st) != 0 ? -errno : !S_ISREG(st.st_mode) ? -EINVAL : 0;
    if (rc == 0 && st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        rc = p == MAP_FAILED ? -errno : 0;
        e->bytes = rc ? NULL : p;
        e->size = rc ? 0 : (size_t)st.st_size;
    }
    close(fd);
    if (rc == 0)
        examine(e);
    return rc;
}

void doctor_elf_close(struct doctor_elf *e)
{
    if (e->bytes)
        munmap((void *)(uintptr_t)e->bytes, e->size);
    e->bytes = NULL;
}

const char *doctor_elf_text(const struct doctor_elf *e, const char *text)
{
    return e->bytes ? memmem(e->bytes, e->size, text, strlen(text)) : NULL;
}

bool doctor_elf_needs(const struct doctor_elf *e, const char *stem)
{
    size_t len = strlen(stem);
    for (const char *at_name = e->needed; *at_name; at_name += strcspn(at_name, " ") + 1)
        if (strncmp(at_name, stem, len) == 0)
            return true;
    return false;
}
