/* SPDX-License-Identifier: Apache-2.0 */
/* A program that opens a library that is bound to the driver, then slipring, for all (RTLD_GLOBAL), and then what knows
 * of CUDA and is to be served by it. Nothing is preloaded.
 *
 *   late SLIPRING LIBRARY MODULE ARGUMENT...      runs the module's module_main
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *module = NULL;
    int (*run)(int, char **) = NULL;
    if (argc > 3 && dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) && dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL))
        module = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
    if (module)
        *(void **)&run = dlsym(module, "module_main");
    if (!run) {
        fprintf(stderr, "late: %s\n", argc > 3 ? dlerror() : "usage: late SLIPRING LIBRARY MODULE ARGUMENT...");
        return 2;
    }
    return run(argc - 3, argv + 3);
}
