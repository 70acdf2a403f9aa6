/* SPDX-License-Identifier: Apache-2.0 */
/* RTLD_NEXT keeps its meaning, and look-ups work before main. Arguments: where the libraries were preloaded, "before"
 * or "after" libslipring. */
#include <dlfcn.h>
#include <string.h>
#include "check.h"

int main(int argc, char **argv)
{
    int (*of_next)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "next_of_next");
    void *(*lookup)(const char *) = (void *(*)(const char *))dlsym(RTLD_DEFAULT, "next_lookup");
    void *(*early)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "next_early");
    CHECK(argc == 2 && of_next && lookup && early);

    /* Resolved from libslipring instead of from the caller, this would find the first of the two again. */
    CHECK(of_next() == 2);
    CHECK(lookup("next_no_such_symbol") == NULL && dlerror() != NULL);
    CHECK(lookup("getppid") == dlsym(RTLD_DEFAULT, "getppid"));

    void *ours = dlsym(RTLD_DEFAULT, "cuLaunchKernel");
    CHECK(ours != NULL);
    CHECK(early() == ours);
    if (strcmp(argv[1], "before") == 0)
        CHECK(lookup("cuLaunchKernel") == ours);
    else /* libslipring is no longer next, and the driver was loaded privately */
        CHECK(lookup("cuLaunchKernel") == NULL);
    return 0;
}
