# SPDX-License-Identifier: Apache-2.0
# NCCL's profiler interface and NVTX ranges.
find_package(Threads REQUIRED)
add_executable(profile_plugin profiler_plugin.c profiler_driver.c profiler_threads.c)
target_include_directories(profile_plugin PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(profile_plugin PRIVATE slipring_cuda_headers Threads::Threads ${CMAKE_DL_LIBS})

set(environment "SLIPRING_LIB=$<TARGET_FILE:slipring>;SOFTGPU_DIR=${SOFTGPU_DIR};TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST}")
function(slr_profiler_test name)
  add_test(NAME profiler_${name} COMMAND ${ARGN})
  set_tests_properties(profiler_${name} PROPERTIES TIMEOUT 120 LABELS profiler ENVIRONMENT "${environment}")
endfunction()

# The tables, loaded as NCCL loads them, one process for each case.
foreach(case versions off orders oddities many full stale sums exit threads)
  slr_profiler_test(${case} ${CMAKE_CURRENT_SOURCE_DIR}/profiler_plugin.sh $<TARGET_FILE:profile_plugin> ${case})
endforeach()

# Whole programs: NCCL's lines and slipring's, together.
slr_e2e_program(profile_mix profiler_mix.c $<TARGET_OBJECTS:tests_ranks>)
foreach(mode preloaded named both other-copy off open)
  slr_profiler_test(mix_${mode} ${CMAKE_CURRENT_SOURCE_DIR}/profiler_mix.sh ${mode} $<TARGET_FILE:profile_mix>)
  # The software NCCL keeps what was captured: a graph may run it again.
  set_property(TEST profiler_mix_${mode} APPEND PROPERTY ENVIRONMENT LSAN_OPTIONS=detect_leaks=0)
endforeach()

# NVTX.
if(SLIPRING_NVTX_INCLUDE)
  add_library(nvtx_tool MODULE profiler_nvtx_tool.c)
  target_include_directories(nvtx_tool SYSTEM PRIVATE ${SLIPRING_NVTX_INCLUDE})
  slr_profiler_test(nvtx ${CMAKE_CURRENT_SOURCE_DIR}/profiler_nvtx.sh $<TARGET_FILE:nvtx_tool> $<TARGET_FILE:fuse> $<TARGET_FILE:profile_mix>)
  set_property(TEST profiler_nvtx APPEND PROPERTY ENVIRONMENT LSAN_OPTIONS=detect_leaks=0)
endif()

# What it costs, in instructions.
add_executable(nvtx_loop profiler_nvtx_loop.c)
target_link_libraries(nvtx_loop PRIVATE slr_base)
if(NOT SLIPRING_SANITIZE)
  slr_profiler_test(cost ${CMAKE_CURRENT_SOURCE_DIR}/profiler_cost.sh $<TARGET_FILE:profile_plugin> $<TARGET_FILE:nvtx_loop>
    $<IF:$<CONFIG:Debug>,10000,2500> $<IF:$<CONFIG:Debug>,60,10>)
  set_tests_properties(profiler_cost PROPERTIES SKIP_RETURN_CODE 77)
endif()
