/* SPDX-License-Identifier: Apache-2.0 */
/* The driver and its devices, asked in a child. */
#include "tools/doctor/devices.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <string.h>
#include "tools/common/child.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/driver.h"

static struct doctor_driver drv; /* of the child */

/* CALL(v, fn, ...): notes the function, calls it when it is there, and notes its error. True:
 * success. */
#define CALL(v, table, fn, ...) ((table).fn ? (noted((v), #fn), went((v), #fn, (table).fn(__VA_ARGS__))) : false)

static void noted(struct doctor_devices *v, const char *function)
{
    snprintf(v->step, sizeof v->step, "%s", function);
}

static bool went(struct doctor_devices *v, const char *function, CUresult r)
{
    *v->step = '\0';
    if (r == CUDA_SUCCESS)
        return true;
    if (!*v->failed) {
        snprintf(v->error, sizeof v->error, "%s", doctor_cuda_error(r));
        snprintf(v->failed, sizeof v->failed, "%s", function);
    }
    return false;
}

static int attribute(struct doctor_devices *v, CUdevice_attribute which, CUdevice dev, int fallback)
{
    int value = fallback;
    if (!slr_real.cuDeviceGetAttribute)
        return fallback;
    noted(v, "cuDeviceGetAttribute");
    CUresult r = slr_real.cuDeviceGetAttribute(&value, which, dev); /* an older driver does not know all */
    *v->step = '\0';
    return r == CUDA_SUCCESS ? value : fallback;
}

static void describe(struct doctor_devices *v, int i)
{
    struct doctor_device *g = &v->device[i];
    CUdevice dev = i;
    if (!CALL(v, slr_real, cuDeviceGet, &dev, i))
        return;
    CALL(v, slr_real, cuDeviceGetName, g->name, sizeof g->name, dev);
    if (!drv.cuDeviceGetPCIBusId || drv.cuDeviceGetPCIBusId(g->pci, sizeof g->pci, dev) != CUDA_SUCCESS)
        *g->pci = '\0';
    size_t bytes = 0;
    if (slr_real.cuDeviceTotalMem && slr_real.cuDeviceTotalMem(&bytes, dev) == CUDA_SUCCESS)
        g->bytes = bytes;
    g->major = attribute(v, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev, 0);
    g->minor = attribute(v, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev, 0);
    g->compute_mode = attribute(v, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, dev, CU_COMPUTEMODE_DEFAULT);
    g->copy_engines = attribute(v, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, dev, -1);
    g->memops = attribute(v, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, dev, 1);
    g->vmm = attribute(v, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, dev, 0) &&
             attribute(v, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, dev, 0);
}

static void describe_link(struct doctor_devices *v, int i, int j)
{
    struct doctor_link *l = &v->link[i][j];
    int can = 0, rank = -1;
    noted(v, "cuDeviceCanAccessPeer");
    l->access = slr_real.cuDeviceCanAccessPeer && slr_real.cuDeviceCanAccessPeer(&can, i, j) == CUDA_SUCCESS && can;
    if (!drv.cuDeviceGetP2PAttribute ||
        drv.cuDeviceGetP2PAttribute(&rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, i, j) != CUDA_SUCCESS)
        rank = -1;
    l->rank = (int8_t)(rank > 127 ? 127 : rank);
    *v->step = '\0';
}

static void find_file(struct doctor_devices *v)
{
    struct link_map *map = NULL;
    if (dlinfo(drv.handle, RTLD_DI_LINKMAP, &map) == 0 && map)
        snprintf(v->file, sizeof v->file, "%s", map->l_name);
    v->softgpu = dlsym(drv.handle, "softgpuKernelRegister") != NULL;
}

static void ask(void *data, int index)
{
    struct doctor_devices *v = data;
    (void)index;
    noted(v, "dlopen");
    v->loaded = doctor_driver_load(&drv, v->missing, sizeof v->missing);
    if (!v->loaded) {
        const char *why = dlerror();
        snprintf(v->load_error, sizeof v->load_error, "%s", why ? why : "no reason given");
        return;
    }
    find_file(v);
    CALL(v, drv, cuDriverGetVersion, &v->version);
    if (!CALL(v, drv, cuInit, 0) || !CALL(v, drv, cuDeviceGetCount, &v->count))
        return;
    for (int i = 0; i < doctor_known_devices(v); i++)
        describe(v, i);
    for (int i = 0; i < doctor_known_devices(v); i++)
        for (int j = 0; j < doctor_known_devices(v); j++)
            if (i != j)
                describe_link(v, i, j);
    noted(v, "nvmlInit");
    if (!v->softgpu)
        doctor_ask_nvml(v);
    *v->step = '\0';
}

static void check_driver(struct doctor *d, const struct doctor_devices *v)
{
    if (!v->loaded) {
        doctor_add(d, DOCTOR_DRIVER, DOCTOR_FAIL, "no CUDA driver: %s", v->load_error);
        return;
    }
    doctor_add(d, DOCTOR_DRIVER, DOCTOR_OK, "%s%s, CUDA %d.%d", v->softgpu ? "softgpu: " : "", v->file,
               v->version / 1000, v->version % 1000 / 10);
    if (*v->missing)
        doctor_add(d, DOCTOR_DRIVER_FUNCTIONS, DOCTOR_FAIL, "missing: %s", v->missing);
    else
        doctor_add(d, DOCTOR_DRIVER_FUNCTIONS, DOCTOR_OK, "all that slipring needs are there");
}

/* Equal devices in a row are one finding. */
static void list_devices(struct doctor *d, const struct doctor_devices *v)
{
    int n = doctor_known_devices(v);
    for (int i = 0, j; i < n; i = j) {
        const struct doctor_device *g = &v->device[i];
        for (j = i + 1; j < n && !strcmp(v->device[j].name, g->name) && v->device[j].major == g->major &&
                        v->device[j].minor == g->minor && v->device[j].bytes == g->bytes;)
            j++;
        doctor_add(d, DOCTOR_DEVICES, DOCTOR_OK, "%d x %s, compute capability %d.%d, %llu GiB", j - i, g->name,
                   g->major, g->minor, (unsigned long long)(g->bytes >> 30));
        if (strstr(g->name, " MIG ")) { /* CUDA puts the slice's profile behind the name */
            doctor_add(d, DOCTOR_DEVICES, DOCTOR_WARN,
                       "device %d is a part of a GPU (MIG): between such parts there is no CUDA IPC, so ranks on "
                       "different ones stay with NCCL (no_ipc)",
                       i);
            doctor_advise(d, "Give each rank a whole GPU: nvidia-smi -mig 0 (as root).");
        }
    }
}

static void check_modes(struct doctor *d, const struct doctor_devices *v)
{
    int prohibited = -1, exclusive = -1;
    for (int i = doctor_known_devices(v) - 1; i >= 0; i--) {
        if (v->device[i].compute_mode == CU_COMPUTEMODE_PROHIBITED)
            prohibited = i;
        else if (v->device[i].compute_mode != CU_COMPUTEMODE_DEFAULT)
            exclusive = i;
    }
    if (prohibited >= 0)
        doctor_add(d, DOCTOR_COMPUTE_MODE, DOCTOR_FAIL, "device %d is prohibited: no program may use it", prohibited);
    else if (exclusive >= 0)
        doctor_add(d, DOCTOR_COMPUTE_MODE, DOCTOR_WARN, "device %d is exclusive: one rank for each device", exclusive);
    else
        doctor_add(d, DOCTOR_COMPUTE_MODE, DOCTOR_OK, "every device may be shared by processes");
}

/* The child's end, when it did not come to its own. */
static bool check_end(struct doctor *d, const struct doctor_devices *v, struct child_end end)
{
    if (end.how == CHILD_ENDED && end.value == 0)
        return true;
    if (end.how == CHILD_TIMED_OUT)
        doctor_add(d, DOCTOR_DEVICES, DOCTOR_FAIL, "the driver did not answer within %u s, in %s", d->limit_ms / 1000,
                   v->step);
    else if (end.how == CHILD_SIGNALLED)
        doctor_add(d, DOCTOR_DEVICES, DOCTOR_FAIL, "the driver crashed (%s) in %s", strsignal(end.value), v->step);
    else
        doctor_add(d, DOCTOR_DEVICES, DOCTOR_UNKNOWN, "the driver could not be asked: %s",
                   end.how == CHILD_NOT_STARTED ? "no process could be started" : "the process that asked it ended");
    return false;
}

void doctor_check_devices(struct doctor *d)
{
    struct doctor_devices *v = child_shared(sizeof *v);
    struct child_end end;
    v->count = -1;
    d->devices = v;
    child_run(ask, v, 1, d->limit_ms, &end);
    bool whole = check_end(d, v, end);
    if (v->loaded || whole)
        check_driver(d, v);
    if (!whole || !v->loaded)
        return;
    if (v->count < 0)
        doctor_add(d, DOCTOR_DEVICES, DOCTOR_FAIL, "%s: %s", *v->failed ? v->failed : "cuInit",
                   *v->failed ? v->error : "not in this driver");
    else if (v->count == 0)
        doctor_add(d, DOCTOR_DEVICES, DOCTOR_FAIL, "the driver offers no device");
    else if (*v->failed)
        doctor_add(d, DOCTOR_DEVICES, DOCTOR_WARN, "%d devices, but %s: %s", v->count, v->failed, v->error);
    if (v->count > 0) {
        list_devices(d, v);
        check_modes(d, v);
    }
}
