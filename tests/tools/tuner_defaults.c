/* SPDX-License-Identifier: Apache-2.0 */
/* tuner_defaults LIBRARY: asks the tuner for every collective and some sizes. Status 0 when it left all to NCCL, 1 when
 * it decided something, 3 when it failed. */
#include <dlfcn.h>
#include <stdio.h>
#include "plugin/abi/tuner.h"

int main(int argc, char **argv)
{
    void *handle = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct slr_tuner_v5 *t = handle ? dlsym(handle, "ncclTunerPlugin_v5") : NULL;
    void *context = NULL;
    if (!t || t->init(&context, 1, 8, 1, NULL, NULL, NULL) != ncclSuccess || !context)
        return 3;
    for (int func = 0; func < 5; func++)
        for (size_t bytes = 1; bytes < (size_t)1 << 32; bytes *= 4) {
            float cost[7][3];
            int channels = 0;
            for (int i = 0; i < 21; i++)
                cost[i / 3][i % 3] = i < 6 ? 1.0f + (float)(i % 3) : -1.0f; /* trees and rings */
            if (t->get_coll_info(context, (enum slr_nccl_func)func, bytes, 1, (float **)cost, 7, 3, 0, &channels) !=
                ncclSuccess)
                return 3;
            if (channels || cost[0][0] != 1 || cost[1][2] != 3)
                return 1;
        }
    return t->finalize(context) == ncclSuccess ? 0 : 3;
}
