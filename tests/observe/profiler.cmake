# SPDX-License-Identifier: Apache-2.0
# NCCL's profiler interface and NVTX ranges.
program(profile_plugin profiler_plugin.c profiler_driver.c profiler_threads.c)

# The tables, loaded as NCCL loads them, one process for each case.
foreach(case versions off orders oddities many full stale sums exit threads)
  run(profiler_${case} 120 ${CMAKE_CURRENT_SOURCE_DIR}/profiler_plugin.sh $<TARGET_FILE:profile_plugin> ${case})
endforeach()

# Whole programs: NCCL's lines and slipring's, together.
program(profile_mix profiler_mix.c LIBS ranks cudart cublas cublasLt nccl)
foreach(mode preloaded named both other-copy off open)
  run(profiler_mix_${mode} 120 ${CMAKE_CURRENT_SOURCE_DIR}/profiler_mix.sh ${mode} $<TARGET_FILE:profile_mix> ENV LSAN_OPTIONS=detect_leaks=0)
  # The software NCCL keeps what was captured: a graph may run it again.
endforeach()

# NVTX.
if(SLIPRING_NVTX_INCLUDE)
  add_library(nvtx_tool MODULE profiler_nvtx_tool.c)
  target_include_directories(nvtx_tool SYSTEM PRIVATE ${SLIPRING_NVTX_INCLUDE})
  run(profiler_nvtx 120 ${CMAKE_CURRENT_SOURCE_DIR}/profiler_nvtx.sh $<TARGET_FILE:nvtx_tool> $<TARGET_FILE:fuse> $<TARGET_FILE:profile_mix>
    ENV LSAN_OPTIONS=detect_leaks=0)
endif()

# What it costs, in instructions.
add_executable(nvtx_loop profiler_nvtx_loop.c)
target_link_libraries(nvtx_loop PRIVATE slr_base)
if(NOT SLIPRING_SANITIZE)
  run(profiler_cost 120 ${CMAKE_CURRENT_SOURCE_DIR}/profiler_cost.sh $<TARGET_FILE:profile_plugin> $<TARGET_FILE:nvtx_loop>
    $<IF:$<CONFIG:Debug>,10000,2500> $<IF:$<CONFIG:Debug>,60,10> PROPERTIES SKIP_RETURN_CODE 77)
endif()
