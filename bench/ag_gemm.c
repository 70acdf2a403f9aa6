/* ag_gemm: the job of a tensor-parallel layer, all-gather then GEMM, as a plain NCCL and cuBLAS program. */
#include "ag_launch.h"

int main(int argc, char **argv)
{
    struct ag_options options;
    const int status = ag_options_parse(&options, argc, argv);
    if (status < 0)
        return AG_OK; /* --help */
    return status == AG_OK ? ag_launch(&options) : status;
}
