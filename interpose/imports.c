/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/reach.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "base/real.h"
#include "interpose/dlsym.h"
#include "interpose/gate_table.h"
#include "interpose/resolve.h"

#if defined(__x86_64__)
enum { CALL = R_X86_64_JUMP_SLOT, ADDRESS = R_X86_64_GLOB_DAT, POINTER = R_X86_64_64 };
#elif defined(__aarch64__)
enum { CALL = R_AARCH64_JUMP_SLOT, ADDRESS = R_AARCH64_GLOB_DAT, POINTER = R_AARCH64_ABS64 };
#endif

/* ---- the real functions ---- */

struct function {
    const char *name;
    void *const *real;
    enum slr_lib lib;
};

static const struct function functions[] = {
#define X(sym, cls, arg, why) {#sym, &slr_gate_found[SLR_GATE_IX_##sym], SLR_LIB_CUDA},
#include "interpose/gate.def"
#undef X
#define L(sym)
#define P(sym) {#sym, &slr_real_##sym, SLR_LIB_CUDA},
#define N(sym) {#sym, (void *const *)&slr_real.sym, SLR_LIB_NCCL},
#define B(sym) {#sym, (void *const *)&slr_real.sym, SLR_LIB_CUBLAS},
#define T(sym) {#sym, (void *const *)&slr_real.sym, SLR_LIB_CUBLASLT},
#include "interpose/hooks.def"
#undef L
#undef P
#undef N
#undef B
#undef T
};

struct real {
    uintptr_t at;
    const char *name;
};
enum { FUNCTIONS = sizeof functions / sizeof *functions, SLOTS = 2048 };
_Static_assert((FUNCTIONS + 4) * 2 < SLOTS, "the tables stay at most half full");
static struct real reals[SLOTS]; /* by address; several names may have one */
static const char *names[SLOTS]; /* hooked ones */
static unsigned known;
_Static_assert((SLOTS & (SLOTS - 1)) == 0, "a mask");

static unsigned slot_of(uintptr_t key)
{
    return (unsigned)((key * 0x9e3779b97f4a7c15u) >> 53) & (SLOTS - 1);
}

static uintptr_t key_of(const char *name)
{
    uintptr_t h = 0;
    for (; *name; name++)
        h = h * 131 + (unsigned char)*name;
    return h;
}

static void enter(const char *name, const void *real)
{
    unsigned i = slot_of(key_of(name));
    while (names[i])
        i = (i + 1) % SLOTS;
    names[i] = name;
    if (!real)
        return;
    i = slot_of((uintptr_t)real);
    while (reals[i].name)
        i = (i + 1) % SLOTS;
    reals[i] = (struct real){(uintptr_t)real, name};
    known++;
}

unsigned slr_imports_begin(void)
{
    memset(reals, 0, sizeof reals);
    memset(names, 0, sizeof names);
    known = 0;
#define L(sym) enter(#sym, (const void *)atomic_load(&slr_real_##sym));
#define P(sym)
#define N(sym)
#define B(sym)
#define T(sym)
#include "interpose/hooks.def"
#undef L
#undef P
#undef N
#undef B
#undef T
    for (unsigned i = 0; i < FUNCTIONS; i++)
        enter(functions[i].name, slr_found(functions[i].lib) ? *functions[i].real : NULL);
    return known;
}

/* `at` is the real function of that name. */
static bool is_real(uintptr_t at, const char *name)
{
    for (unsigned i = slot_of(at); reals[i].name; i = (i + 1) % SLOTS)
        if (reals[i].at == at && strcmp(reals[i].name, name) == 0)
            return true;
    return false;
}

static bool any_real(uintptr_t at)
{
    for (unsigned i = slot_of(at); reals[i].name; i = (i + 1) % SLOTS)
        if (reals[i].at == at)
            return true;
    return false;
}

static bool hooked(const char *name)
{
    for (unsigned i = slot_of(key_of(name)); names[i]; i = (i + 1) % SLOTS)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* ---- an object ---- */

struct object {
    const struct dl_phdr_info *info;
    const ElfW(Sym) * symbols;
    const char *strings;
    const ElfW(Rela) * rela, *plt;
    size_t relas, plts;
};

/* The C library writes addresses into the dynamic section, where it can. */
static const void *absolute(const struct object *o, ElfW(Addr) p)
{
    return (const void *)(p < o->info->dlpi_addr ? p + o->info->dlpi_addr : p);
}

static void take(struct object *o, const ElfW(Dyn) * d)
{
    const void *p = absolute(o, d->d_un.d_ptr);
    switch (d->d_tag) {
    case DT_SYMTAB:
        o->symbols = p;
        break;
    case DT_STRTAB:
        o->strings = p;
        break;
    case DT_RELA:
        o->rela = p;
        break;
    case DT_RELASZ:
        o->relas = d->d_un.d_val / sizeof(ElfW(Rela));
        break;
    case DT_JMPREL:
        o->plt = p;
        break;
    case DT_PLTRELSZ:
        o->plts = d->d_un.d_val / sizeof(ElfW(Rela));
        break;
    default:
        break;
    }
}

static bool open_object(struct object *o, const struct dl_phdr_info *info)
{
    *o = (struct object){.info = info};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        if (d == _DYNAMIC) /* this library */
            return false;
        for (; d->d_tag != DT_NULL; d++)
            take(o, d);
    }
    return o->symbols && o->strings;
}

/* A library's calls of its own functions are none of slipring's business. */
static enum slr_imports bound(const struct object *o, const char *name, uintptr_t to, bool call)
{
    if (any_real(to))
        return is_real(to, name) && !slr_elf_has(o->info, to) ? SLR_IMPORTS_PAST : SLR_IMPORTS_WELL;
    if (call && slr_elf_has(o->info, to)) /* into its procedure linkage table */
        return hooked(name) ? SLR_IMPORTS_LATER : SLR_IMPORTS_WELL;
    /* Still what the file has there: nothing, or an offset. No object lies so low. */
    if (to < o->info->dlpi_addr && (to == 0 || (call && slr_elf_has(o->info, to + o->info->dlpi_addr))))
        return hooked(name) ? SLR_IMPORTS_LOADING : SLR_IMPORTS_WELL;
    return SLR_IMPORTS_WELL;
}

static enum slr_imports look(const struct object *o, const ElfW(Rela) * rela, size_t n, const char **symbol)
{
    enum slr_imports worst = SLR_IMPORTS_WELL;
    for (size_t i = 0; i < n && worst != SLR_IMPORTS_PAST; i++) {
        const unsigned type = (unsigned)ELF64_R_TYPE(rela[i].r_info);
        if (type != CALL && type != ADDRESS && type != POINTER)
            continue;
        const ElfW(Sym) *s = &o->symbols[ELF64_R_SYM(rela[i].r_info)];
        const char *name = o->strings + s->st_name;
        const bool wanted = (*name == 'c' && name[1] == 'u') || *name == 'n' || *name == 'd';
        /* What it defines itself is its own (-Bsymbolic), or whoever comes first, as with any import. */
        if (!wanted)
            continue;
        const uintptr_t to = *(const uintptr_t *)(o->info->dlpi_addr + rela[i].r_offset);
        const enum slr_imports how = bound(o, name, to, type == CALL);
        if (how > worst) {
            worst = how;
            *symbol = name;
        }
    }
    return worst;
}

enum slr_imports slr_imports_of(const struct dl_phdr_info *info, const char **symbol)
{
    struct object o;
    if (!open_object(&o, info))
        return SLR_IMPORTS_WELL;
    const enum slr_imports data = look(&o, o.rela, o.rela ? o.relas : 0, symbol);
    if (data == SLR_IMPORTS_PAST)
        return data;
    const char *by = *symbol;
    const enum slr_imports calls = look(&o, o.plt, o.plt ? o.plts : 0, &by);
    if (calls > data)
        *symbol = by;
    return calls > data ? calls : data;
}
