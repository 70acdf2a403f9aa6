# SPDX-License-Identifier: Apache-2.0
# Where the CUDA, cuBLAS, NCCL and NVTX headers are. Used by CudaHeaders.cmake, and by scripts/setup.sh as a script:
#
#   cmake -P cmake/CudaSearch.cmake     prints "cuda=FOLDER", "nccl=FOLDER" and "nvtx=FOLDER"; a folder is empty when nothing fits
#
# Looked at in this order: what scripts/setup.sh unpacked, the environment, the toolkit that nvcc belongs to, the usual
# prefixes, and the wheels in Python's site-packages. A folder counts only when it is complete and new enough, so that an
# old toolkit or a wheel without crt/ does not hide a usable one behind it.

set(SLIPRING_CUDA_MIN 13000) # CUDA_VERSION in cuda.h; the library still runs on older drivers and runtimes
set(SLIPRING_NCCL_MIN 22809) # NCCL_VERSION_CODE in nccl.h: the first with ncclCommRevoke

# The value of `#define NAME NUMBER` in a file, 0 when it is not there.
function(slipring_define file name out)
  set(value 0)
  file(STRINGS "${file}" lines REGEX "^#define +${name} +[0-9]+")
  if(lines MATCHES "${name} +([0-9]+)")
    set(value ${CMAKE_MATCH_1})
  endif()
  set(${out} ${value} PARENT_SCOPE)
endfunction()

function(slipring_is_cuda_include dir out)
  set(${out} FALSE PARENT_SCOPE)
  foreach(header cuda.h cuda_runtime_api.h crt/host_defines.h nv/target cudaProfiler.h cublas_v2.h cublasLt.h)
    if(NOT EXISTS "${dir}/${header}")
      return()
    endif()
  endforeach()
  slipring_define("${dir}/cuda.h" CUDA_VERSION version)
  if(version GREATER_EQUAL SLIPRING_CUDA_MIN)
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()

function(slipring_is_nccl_include dir out)
  set(${out} FALSE PARENT_SCOPE)
  if(NOT EXISTS "${dir}/nccl.h")
    return()
  endif()
  slipring_define("${dir}/nccl.h" NCCL_MAJOR major)
  slipring_define("${dir}/nccl.h" NCCL_MINOR minor)
  slipring_define("${dir}/nccl.h" NCCL_PATCH patch)
  math(EXPR version "${major} * 10000 + ${minor} * 100 + ${patch}")
  if(version GREATER_EQUAL SLIPRING_NCCL_MIN)
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()

function(slipring_is_nvtx_include dir out)
  set(${out} FALSE PARENT_SCOPE)
  if(EXISTS "${dir}/nvtx3/nvToolsExt.h" AND EXISTS "${dir}/nvtx3/nvtxDetail/nvtxInit.h")
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()

function(slipring_include_folders out)
  get_filename_component(root "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.." ABSOLUTE)
  set(dirs "${root}/.deps/cuda/include")
  foreach(variable CUDA_HOME CUDA_PATH NCCL_HOME)
    if(DEFINED ENV{${variable}})
      list(APPEND dirs "$ENV{${variable}}/include")
    endif()
  endforeach()
  find_program(nvcc nvcc NO_CACHE)
  if(nvcc)
    file(REAL_PATH "${nvcc}" nvcc)
    get_filename_component(dir "${nvcc}/../../include" ABSOLUTE)
    list(APPEND dirs "${dir}")
  endif()
  list(APPEND dirs /usr/local/cuda/include /opt/cuda/include /usr/include /usr/local/include)
  find_program(python NAMES python3 python NO_CACHE)
  if(python)
    execute_process(COMMAND "${python}" -c "import sys; print(';'.join(p for p in sys.path if 'packages' in p))"
      OUTPUT_VARIABLE paths OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    foreach(path ${paths})
      file(GLOB wheels LIST_DIRECTORIES TRUE "${path}/nvidia/*/include")
      list(APPEND dirs ${wheels})
    endforeach()
  endif()
  set(${out} "${dirs}" PARENT_SCOPE)
endfunction()

# Sets `cuda`, `nccl` and `nvtx` to the first folder that fits, or to nothing.
function(slipring_search_headers cuda nccl nvtx)
  slipring_include_folders(dirs)
  foreach(what cuda nccl nvtx)
    set(found "")
    foreach(dir ${dirs})
      cmake_language(CALL slipring_is_${what}_include "${dir}" good)
      if(good)
        set(found "${dir}")
        break()
      endif()
    endforeach()
    set(${${what}} "${found}" PARENT_SCOPE)
  endforeach()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  slipring_search_headers(cuda nccl nvtx)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo "cuda=${cuda}")
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo "nccl=${nccl}")
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo "nvtx=${nvtx}")
endif()
