# SPDX-License-Identifier: Apache-2.0
# Finds the CUDA, cuBLAS and NCCL headers and makes the target slipring_cuda_headers. Nothing of CUDA is linked: all
# functions are found at run time. SLIPRING_CUDA_INCLUDE, SLIPRING_NCCL_INCLUDE and SLIPRING_NVTX_INCLUDE, when given, are used as
# they are. NVTX may be missing (SLIPRING_NVTX_INCLUDE is empty, or set to OFF): slipring is then built without ranges for tools.
include(${CMAKE_CURRENT_LIST_DIR}/CudaSearch.cmake)

if(NOT SLIPRING_CUDA_INCLUDE OR NOT SLIPRING_NCCL_INCLUDE OR (NOT SLIPRING_NVTX_INCLUDE AND NOT SLIPRING_NVTX_INCLUDE STREQUAL "OFF"))
  slipring_search_headers(slipring_cuda slipring_nccl slipring_nvtx)
  if(NOT SLIPRING_CUDA_INCLUDE)
    set(SLIPRING_CUDA_INCLUDE "${slipring_cuda}" CACHE PATH
      "Folder with cuda.h, cuda_runtime_api.h, cublas_v2.h and cublasLt.h" FORCE)
  endif()
  if(NOT SLIPRING_NCCL_INCLUDE)
    set(SLIPRING_NCCL_INCLUDE "${slipring_nccl}" CACHE PATH "Folder with nccl.h" FORCE)
  endif()
  if(NOT SLIPRING_NVTX_INCLUDE AND NOT SLIPRING_NVTX_INCLUDE STREQUAL "OFF")
    set(SLIPRING_NVTX_INCLUDE "${slipring_nvtx}" CACHE PATH "Folder with nvtx3/nvToolsExt.h; OFF: without" FORCE)
  endif()
endif()
if(NOT SLIPRING_CUDA_INCLUDE OR NOT SLIPRING_NCCL_INCLUDE)
  message(FATAL_ERROR "CUDA headers: '${SLIPRING_CUDA_INCLUDE}', NCCL headers: '${SLIPRING_NCCL_INCLUDE}'; an empty "
    "name means that none were found that are complete and new enough (cuda.h with CUDA_VERSION >= "
    "${SLIPRING_CUDA_MIN}, nccl.h >= ${SLIPRING_NCCL_MIN}). Run scripts/setup.sh, which unpacks the headers of the "
    "vendors' Python wheels into .deps/cuda/include, or name them with -DSLIPRING_CUDA_INCLUDE=... and "
    "-DSLIPRING_NCCL_INCLUDE=...")
endif()
if(SLIPRING_NVTX_INCLUDE)
  message(STATUS "NVTX headers: ${SLIPRING_NVTX_INCLUDE}")
else()
  message(STATUS "NVTX headers: none (nvtx3/nvToolsExt.h); slipring will have no ranges for profiling tools")
endif()
# The library and the tools are the same for every CUDA. Programs that are linked to its libraries (bench/ag_gemm, the
# tests), and the software GPU, have the SONAMEs of the headers' one: libcudart.so.12 or .13.
slipring_define("${SLIPRING_CUDA_INCLUDE}/cuda.h" CUDA_VERSION slipring_cuda)
math(EXPR SLIPRING_CUDA_MAJOR "${slipring_cuda} / 1000")
message(STATUS "CUDA ${SLIPRING_CUDA_MAJOR} headers: ${SLIPRING_CUDA_INCLUDE}; NCCL headers: ${SLIPRING_NCCL_INCLUDE}")
add_library(slipring_cuda_headers INTERFACE)
target_include_directories(slipring_cuda_headers SYSTEM INTERFACE ${SLIPRING_CUDA_INCLUDE} ${SLIPRING_NCCL_INCLUDE})
target_compile_definitions(slipring_cuda_headers INTERFACE SLIPRING_CUDA_MAJOR=${SLIPRING_CUDA_MAJOR})
