/* SPDX-License-Identifier: Apache-2.0 */
/* NVTX version 3, from the side of a tool: what a program's NVTX hands to the library that NVTX_INJECTION64_PATH names,
 * and which of the program's calls it then makes into that library.
 *
 * Written down here because the library is also built without NVTX's headers. Order and types of the fields and the
 * numbers are NVTX's binary interface, to which newer versions only append: they are those of the headers nvtx3/ of
 * CUDA 11.7, 12.1, 12.9 and 13.0. tests/observe/named_abi.c compares them where there are any. Our names of types begin
 * with slr_.
 *
 * NVTX 3 is headers only: each library that includes them has an instance of its own. At its first call an instance
 * loads the injection library and calls InitializeInjectionNvtx2 with a function that answers for this instance. By
 * that the tool finds the tables of the instance's function pointers, and writes its own functions into them. Not 0:
 * the tool is there. 0: all calls of this instance do nothing for the rest of the process. Calls of other threads into
 * the instance wait meanwhile, by spinning.
 */
#ifndef SLR_PLUGIN_ABI_NVTX_H
#define SLR_PLUGIN_ABI_NVTX_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

typedef const void *(*slr_nvtx_get_table)(uint32_t which);
#define SLR_NVTX_TABLE_CALLBACKS 1 /* struct slr_nvtx_callbacks */

/* Tables of function pointers: two of the instance's six. */
enum slr_nvtx_module { SLR_NVTX_CORE = 1, SLR_NVTX_CORE2 = 5 };

/* table[i] is where the instance keeps its pointer to function i; table[0] and what it does not have are NULL. */
typedef void (*slr_nvtx_function)(void);
typedef slr_nvtx_function **slr_nvtx_table;

struct slr_nvtx_callbacks {
    size_t size;                                                                        /* of this struct */
    int (*get_module)(enum slr_nvtx_module module, slr_nvtx_table *table, unsigned *n); /* not 0: there it is */
};
_Static_assert(sizeof(enum slr_nvtx_module) == sizeof(int), "passed in an int's place");

/* Places in the table CORE: the default domain. */
enum {
    SLR_NVTX_RANGE_PUSH_EX = 8, /* int (const struct slr_nvtx_event *) */
    SLR_NVTX_RANGE_PUSH_A = 9,  /* int (const char *) */
    SLR_NVTX_RANGE_PUSH_W = 10, /* int (const wchar_t *) */
    SLR_NVTX_RANGE_POP = 11     /* int (void) */
};

/* Places in the table CORE2. A domain, or a registered string, is whatever the tool returned when it was made, or NULL:
 * the default domain. */
enum {
    SLR_NVTX_DOMAIN_RANGE_PUSH_EX = 4, /* int (domain, const struct slr_nvtx_event *) */
    SLR_NVTX_DOMAIN_RANGE_POP = 5,     /* int (domain) */
    SLR_NVTX_REGISTER_STRING_A = 10,   /* string (domain, const char *) */
    SLR_NVTX_REGISTER_STRING_W = 11,   /* string (domain, const wchar_t *) */
    SLR_NVTX_DOMAIN_CREATE_A = 12,     /* domain (const char *) */
    SLR_NVTX_DOMAIN_CREATE_W = 13      /* domain (const wchar_t *) */
};

/* Push and pop return the level of the range within its domain on this thread, from 0; below 0: there is none. */
#define SLR_NVTX_NO_LEVEL (-2)

enum slr_nvtx_message { SLR_NVTX_NO_MESSAGE, SLR_NVTX_ASCII, SLR_NVTX_UNICODE, SLR_NVTX_REGISTERED };

struct slr_nvtx_event {
    uint16_t version, size; /* of NVTX; of this struct */
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type; /* enum slr_nvtx_message */
    union {
        const char *ascii;
        const wchar_t *unicode;
        const void *registered;
    } message;
};
_Static_assert(offsetof(struct slr_nvtx_event, payload) == 24, "NVTX's layout");
_Static_assert(offsetof(struct slr_nvtx_event, message_type) == 32, "NVTX's layout");
_Static_assert(offsetof(struct slr_nvtx_event, message) == 40, "NVTX's layout");
_Static_assert(sizeof(struct slr_nvtx_event) == 48, "NVTX's layout");

/* Exported by callers/injection.c; NVTX calls it. 1: this tool is there; 0: it is not. */
int InitializeInjectionNvtx2(slr_nvtx_get_table get);

#endif
