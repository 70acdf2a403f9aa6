/* SPDX-License-Identifier: Apache-2.0 */
/* A preloaded library as others write them: finds the next definition with RTLD_NEXT, and looks things up before main.
 * Built twice, as NEXT_ID 1 and 2. */
#include <dlfcn.h>
#include <stddef.h>

int next_id(void);
int next_of_next(void);
void *next_lookup(const char *name);
void *next_early(void);

int next_id(void)
{
    return NEXT_ID;
}

#if NEXT_ID == 1
static void *early;

/* Runs before libslipring's own initialisation when it is preloaded after that. */
__attribute__((constructor)) static void look_up_early(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    early = driver ? dlsym(driver, "cuLaunchKernel") : NULL;
}

void *next_early(void)
{
    return early;
}

int next_of_next(void)
{
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "next_id");
    return next ? next() : 0;
}

void *next_lookup(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}
#endif
