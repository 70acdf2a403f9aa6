/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/dlsym.h"

#include <stddef.h>

/* glibc writes absolute addresses into the dynamic section, except where it is read-only (the
 * vDSO). */
SLR_EARLY static const void *absolute(ElfW(Addr) base, ElfW(Addr) p)
{
    return (const void *)(p < base ? p + base : p);
}

SLR_EARLY static void take(struct slr_elf *o, const ElfW(Dyn) * d)
{
    const void *p = absolute(o->base, d->d_un.d_ptr);
    if (d->d_tag == DT_SYMTAB)
        o->symbols = p;
    else if (d->d_tag == DT_STRTAB)
        o->strings = p;
    else if (d->d_tag == DT_GNU_HASH)
        o->gnu_hash = p;
    else if (d->d_tag == DT_VERSYM)
        o->versions = p;
    else if (d->d_tag == DT_RELA)
        o->rela = p;
    else if (d->d_tag == DT_RELASZ)
        o->rela_bytes = d->d_un.d_val;
    else if (d->d_tag == DT_JMPREL)
        o->plt = p;
    else if (d->d_tag == DT_PLTRELSZ)
        o->plt_bytes = d->d_un.d_val;
}

/* Field by field: a literal may be a call of memset, which is not bound yet. */
SLR_EARLY bool slr_elf_open(struct slr_elf *o, const ElfW(Dyn) * dynamic, ElfW(Addr) base)
{
    o->base = base;
    o->symbols = NULL;
    o->strings = NULL;
    o->gnu_hash = NULL;
    o->versions = NULL;
    o->rela = o->plt = NULL;
    o->rela_bytes = o->plt_bytes = 0;
    for (const ElfW(Dyn) *d = dynamic; d && d->d_tag != DT_NULL; d++)
        take(o, d);
    return o->symbols && o->strings;
}

SLR_EARLY static uint32_t hash_of(const char *name)
{
    uint32_t h = 5381;
    for (; *name; name++)
        h = h * 33 + (unsigned char)*name;
    return h;
}

SLR_EARLY static bool equal(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* A function that is defined here, in its default version: the hidden ones are for programs linked
 * long ago. */
SLR_EARLY static bool usable(const struct slr_elf *o, uint32_t i)
{
    const ElfW(Sym) *s = &o->symbols[i];
    if (s->st_shndx == SHN_UNDEF || s->st_value == 0 || (s->st_info & 0xf) != STT_FUNC)
        return false;
    return !o->versions || (o->versions[i] & 0x8000) == 0;
}

SLR_EARLY static void *find(const struct slr_elf *o, const char *name)
{
    /* The head: number of buckets, first symbol, words of the Bloom filter, shift. */
    const uint32_t *head = o->gnu_hash;
    const uint32_t *buckets = head + 4 + head[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + head[0];
    uint32_t h = hash_of(name), i;

    if (head[0] == 0)
        return NULL;
    i = buckets[h % head[0]];
    if (i < head[1])
        return NULL;
    for (;; i++) {
        uint32_t entry = chain[i - head[1]];
        if ((entry | 1) == (h | 1) && usable(o, i) && equal(o->strings + o->symbols[i].st_name, name))
            return (void *)(o->base + o->symbols[i].st_value);
        if (entry & 1)
            return NULL;
    }
}

SLR_EARLY void *slr_elf_symbol(const ElfW(Dyn) * dynamic, ElfW(Addr) base, const char *name)
{
    struct slr_elf o;
    return slr_elf_open(&o, dynamic, base) && o.gnu_hash ? find(&o, name) : NULL;
}

/* The linker's list is read without its lock. The objects that a program starts with stand first
 * and stay; the C library is one of them, so the walk ends before what other threads may load or
 * unload. */
SLR_EARLY void *slr_elf_next(const char *name)
{
    void *before = NULL;
    bool after_us = false;
    for (const struct link_map *m = _r_debug.r_map; m; m = m->l_next) {
        if (m->l_ld == _DYNAMIC) {
            after_us = true;
            continue;
        }
        /* Only what stands behind this library is overridden by it; an earlier one is the second
         * choice. */
        if (before && !after_us)
            continue;
        void *p = slr_elf_symbol(m->l_ld, m->l_addr, name);
        if (p && after_us)
            return p;
        if (p)
            before = p;
    }
    return before;
}

const ElfW(Dyn) * slr_elf_dynamic(const struct dl_phdr_info *info)
{
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            const ElfW(Dyn) *d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
            return d == _DYNAMIC ? NULL : d;
        }
    return NULL;
}

bool slr_elf_has(const struct dl_phdr_info *info, uintptr_t p)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type == PT_LOAD && p - (info->dlpi_addr + h->p_vaddr) < h->p_memsz)
            return true;
    }
    return false;
}

/* ---- the C library's dlsym and its like ---- */

_Atomic(slr_dlsym_fn) slr_real_dlsym;
_Atomic(slr_dlvsym_fn) slr_real_dlvsym;
_Atomic(slr_dlopen_fn) slr_real_dlopen;
_Atomic(slr_dlmopen_fn) slr_real_dlmopen;

/* Stands for what the C library lacks; the arguments do not matter. */
static void *none(void)
{
    return NULL;
}

SLR_EARLY static void *next_or_none(const char *name)
{
    void *found = slr_elf_next(name);
    return found ? found : (void *)none;
}

/* Two threads may do this at the same time: they find the same. */
SLR_EARLY void slr_dlsym_ready(void)
{
    if (atomic_load_explicit(&slr_real_dlsym, memory_order_acquire))
        return;
    atomic_store_explicit(&slr_real_dlopen, (slr_dlopen_fn)next_or_none("dlopen"), memory_order_relaxed);
    atomic_store_explicit(&slr_real_dlmopen, (slr_dlmopen_fn)next_or_none("dlmopen"), memory_order_relaxed);
    atomic_store_explicit(&slr_real_dlvsym, (slr_dlvsym_fn)next_or_none("dlvsym"), memory_order_relaxed);
    atomic_store_explicit(&slr_real_dlsym, (slr_dlsym_fn)next_or_none("dlsym"), memory_order_release);
}

void *slr_dlsym(void *handle, const char *name)
{
    slr_dlsym_ready();
    return atomic_load_explicit(&slr_real_dlsym, memory_order_relaxed)(handle, name);
}
