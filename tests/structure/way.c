/* SPDX-License-Identifier: Apache-2.0 */
/* Writes down which functions of the library one call passes through, for structure.py.
 *
 * To be preloaded before a libslipring.so that is built with -finstrument-functions. The WAY_NTH call (from 1) of the
 * exported function WAY_CALL on any thread is followed from its beginning to its end; for each function that it enters,
 * a line "DEPTH OFFSET" goes to the file WAY_FILE.PID, OFFSET being the function's in the library's file.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller);

static _Atomic int calls;
static _Thread_local int depth;   /* of instrumented functions on this thread */
static _Thread_local FILE *lines; /* NULL: this thread is not being followed */
static _Thread_local void *library;

static bool is_the_call(const Dl_info *at)
{
    const char *name = getenv("WAY_CALL"), *nth = getenv("WAY_NTH");
    return name && nth && at->dli_sname && strcmp(at->dli_sname, name) == 0 &&
           __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) == atoi(nth);
}

static FILE *begin(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", getenv("WAY_FILE"), (int)getpid());
    return fopen(path, "w");
}

void __cyg_profile_func_enter(void *function, void *caller)
{
    Dl_info at;
    (void)caller;
    if (depth++ > 0 && !lines)
        return;
    if (!dladdr(function, &at))
        return;
    if (!lines && is_the_call(&at)) {
        lines = begin();
        library = at.dli_fbase;
    }
    if (lines && at.dli_fbase == library)
        fprintf(lines, "%d %#lx\n", depth - 1, (unsigned long)((uintptr_t)function - (uintptr_t)at.dli_fbase));
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function;
    (void)caller;
    if (--depth > 0 || !lines)
        return;
    fclose(lines);
    lines = NULL;
}
