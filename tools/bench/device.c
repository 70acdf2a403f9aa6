/* SPDX-License-Identifier: Apache-2.0 */
/* Where ag_gemm runs: on what the driver offers, else on the software GPU; and the problem that
 * suits it. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/bench/bench.h"
#include "tools/common/child.h"

#define DRIVER_MS 60000 /* a driver that has to load its module first takes its time */

/* What ag_gemm is linked to: the libraries of the CUDA whose headers it is built with. */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define OF_CUDA(name) name ".so." TEXT(SLIPRING_CUDA_MAJOR)
static const char *const libraries[] = {OF_CUDA("libcudart"), OF_CUDA("libcublas"), OF_CUDA("libcublasLt"),
                                        "libnccl.so.2"};
#define LIBRARIES (sizeof libraries / sizeof *libraries)

struct found {
    int devices;
    bool softgpu, library[LIBRARIES];
};

static void look(void *data, int index)
{
    struct found *f = data;
    CUresult (*init)(unsigned) = NULL, (*count)(int *) = NULL;
    (void)index;
    for (size_t i = 0; i < LIBRARIES; i++)
        f->library[i] = dlopen(libraries[i], RTLD_LAZY | RTLD_LOCAL) != NULL;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = cuda ? dlsym(cuda, "cuInit") : NULL;
    memcpy(&init, &found, sizeof init);
    found = cuda ? dlsym(cuda, "cuDeviceGetCount") : NULL;
    memcpy(&count, &found, sizeof count);
    if (!init || !count || init(0) != CUDA_SUCCESS || count(&f->devices) != CUDA_SUCCESS)
        f->devices = 0;
    f->softgpu = cuda && dlsym(cuda, "softgpuKernelRegister");
}

bool bench_has_option(const struct bench *b, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < b->options.count; i++) {
        const char *o = b->options.word[i];
        if (!strncmp(o, "--", 2) && !strncmp(o + 2, name, len) && (o[2 + len] == '\0' || o[2 + len] == '='))
            return true;
    }
    return false;
}

static void add_option(struct bench *b, const char *name, int value)
{
    if (bench_has_option(b, name))
        return;
    words_addf(&b->options, "--%s", name);
    words_addf(&b->options, "%d", value);
}

/* What the caller has not chosen. On the software GPU the CPU computes the GEMMs: m is small. */
static void add_problem(struct bench *b, bool soft, int devices)
{
    int ranks = soft ? 4 : devices > 1 ? devices : 2, size = soft ? 2048 : 8192;
    bool placed = bench_has_option(b, "ranks") || bench_has_option(b, "threads") || bench_has_option(b, "id-file");
    if (!placed)
        add_option(b, "ranks", ranks);
    if (!placed && !bench_has_option(b, "one-gpu") && ranks > devices)
        words_add(&b->options, "--one-gpu");
    if (!bench_has_option(b, "bytes")) {
        add_option(b, "m", soft ? 256 : size);
        add_option(b, "k", size);
        add_option(b, "n", size / ranks * ranks);
    }
    if (soft)
        add_option(b, "iters", 3);
}

/* The toolkit's folders behind those of the caller, when the loader does not find the libraries by
 * itself. */
static void add_library_folders(const struct found *f)
{
    static const char *const homes[] = {"CUDA_HOME", "CUDA_PATH", "NCCL_HOME"};
    static const char *const sub[] = {"lib64", "lib"};
    char path[8192], file[PATH_MAX];
    const char *before = getenv("LD_LIBRARY_PATH");
    int used = snprintf(path, sizeof path, "%s", before ? before : "");
    for (size_t l = 0; l < LIBRARIES; l++)
        for (size_t h = 0; h < 5 && !f->library[l]; h++)
            for (size_t s = 0; s < 2; s++) {
                const char *home = h < 3 ? getenv(homes[h]) : h == 3 ? "/usr/local/cuda" : "/opt/cuda";
                snprintf(file, sizeof file, "%s/%s/%s", home ? home : "", sub[s], libraries[l]);
                if (!home || access(file, R_OK) != 0 || used >= (int)sizeof path)
                    continue;
                used += snprintf(path + used, sizeof path - (size_t)used, "%s%s/%s", used ? ":" : "", home, sub[s]);
                h = 5;
                break;
            }
    if (used && used < (int)sizeof path)
        setenv("LD_LIBRARY_PATH", path, 1);
}

static int use_softgpu(struct bench *b)
{
    const char *launcher = getenv("SLIPRING_LAUNCHER");
    if (!launcher || !*launcher) {
        fputs("slipring bench: no GPU here, and the software GPU is found by the launcher: run `slipring bench`\n",
              stderr);
        return BENCH_ERROR;
    }
    words_add(&b->device, launcher);
    words_add(&b->device, "softgpu");
    if (b->devices) {
        words_add(&b->device, "-n");
        words_addf(&b->device, "%d", b->devices);
    }
    words_add(&b->device, "--");
    return 0;
}

int bench_choose_device(struct bench *b)
{
    struct found *f = child_shared(sizeof *f);
    struct child_end end;
    child_run(look, f, 1, DRIVER_MS, &end);
    if (end.how != CHILD_ENDED)
        f->devices = 0;
    bool usable = f->devices > 0 && !b->softgpu;
    if (b->gpu && (!usable || f->softgpu)) {
        fputs("slipring bench: no usable GPU (--gpu): `slipring doctor` says why\n", stderr);
        return BENCH_ERROR;
    }
    if (usable && !f->softgpu) {
        fprintf(stderr, "slipring bench: on %d GPU%s\n", f->devices, f->devices == 1 ? "" : "s");
        add_library_folders(f);
    } else {
        fprintf(stderr, "slipring bench: on the software GPU%s; times are this CPU's and say nothing about a GPU\n",
                usable || b->softgpu ? "" : ", as there is no usable GPU");
    }
    if (!b->rounds)
        b->rounds = usable && !f->softgpu ? 5 : 2;
    add_problem(b, !usable || f->softgpu, usable ? f->devices : b->devices ? b->devices : 8);
    return usable ? 0 : use_softgpu(b);
}
