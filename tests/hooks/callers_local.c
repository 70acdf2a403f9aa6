/* SPDX-License-Identifier: Apache-2.0 */
/* A program that knows nothing of CUDA and opens a library that does, for itself alone (RTLD_LOCAL), as plug-ins are.
 *
 *   local LIBRARY ARGUMENT...      runs the library's module_main(argc - 1, argv + 1)
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(int, char **) = NULL;
    if (library)
        *(void **)&run = dlsym(library, "module_main");
    if (!run) {
        fprintf(stderr, "local: %s\n", argc > 1 ? dlerror() : "usage: local LIBRARY ARGUMENT...");
        return 2;
    }
    return run(argc - 1, argv + 1);
}
