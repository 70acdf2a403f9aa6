/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/doctor/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "tools/doctor/doctor.h"

/* The headers turn cuMemAlloc into cuMemAlloc_v2: the name is spelled after that. */
#define NAME_(fn) #fn
#define NAME(fn) NAME_(fn)

struct function {
    const char *name;
    void *slot; /* a function pointer */
    bool required;
};

static void take(void *handle, const struct function *f, char *missing, size_t size)
{
    void *found = dlsym(handle, f->name);
    memcpy(f->slot, &found, sizeof found);
    if (!found && f->required)
        doctor_name_in(missing, size, f->name);
}

bool doctor_driver_load(struct doctor_driver *drv, char *missing, size_t size)
{
    const struct function functions[] = {
#define R true
#define O false
#define D(need, fn) {NAME(fn), &slr_real.fn, need},
#define N(need, fn)
#define B(need, fn)
#define T(need, fn)
#include "base/real.def"
#undef R
#undef O
#define F(fn) {NAME(fn), &drv->fn, false},
        DOCTOR_DRIVER(F)
#undef F
    };
    *missing = '\0';
    drv->handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!drv->handle)
        return false;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        take(drv->handle, &functions[i], missing, size);
    return true;
}

const char *doctor_cuda_error(CUresult r)
{
    static char number[32];
    const char *name = NULL;
    if (slr_real.cuGetErrorName && slr_real.cuGetErrorName(r, &name) == CUDA_SUCCESS && name)
        return name;
    snprintf(number, sizeof number, "error %d", (int)r);
    return number;
}
