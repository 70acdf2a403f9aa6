/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a symbol without the dynamic linker's look-up functions, which are themselves hooked here:
 * a reference to dlvsym from this library would be bound to the dlvsym that it exports. */
#ifndef SLR_INTERPOSE_ELFSYM_H
#define SLR_INTERPOSE_ELFSYM_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* The definition of `name` that RTLD_NEXT would find from this library; when no later object
 * defines it, that of any other object. NULL: none. Early code. For symbols of libraries that are
 * never unloaded (the C library's). */
void *slr_elf_next(const char *name);

/* The definition of `name` in one object, which is given by its dynamic section and load address.
 * NULL: not defined there. Early code. */
void *slr_elf_symbol(const ElfW(Dyn) * dynamic, ElfW(Addr) base, const char *name);

/* Whether an address lies in what is loaded of the object. */
bool slr_elf_has(const struct dl_phdr_info *object, uintptr_t at);

#endif
