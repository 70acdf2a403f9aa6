# SPDX-License-Identifier: Apache-2.0
# The hooks under LD_PRELOAD: programs that know nothing of slipring, on a driver that notes what reaches it.
set(dir ${CMAKE_CURRENT_BINARY_DIR})

# fake_driver(NAME DIRECTORY DEFINES...): DIRECTORY/libcuda.so.1. -Bsymbolic: as the real one, it does not call through hooks.
function(fake_driver name directory)
  add_library(${name} SHARED fake/libcuda.c)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE ${ARGN})
  set_target_properties(${name} PROPERTIES OUTPUT_NAME cuda SOVERSION 1 C_VISIBILITY_PRESET default
    LIBRARY_OUTPUT_DIRECTORY ${directory})
  # Versions for dlvsym; they also show that the unversioned exports of libslipring interpose versioned references.
  target_link_options(${name} PRIVATE -Wl,-Bsymbolic -Wl,--default-symver)
endfunction()
fake_driver(interpose_fake_driver ${dir}/driver)
fake_driver(interpose_fake_driver_old ${dir}/driver_old FAKE_LAUNCH_ONLY)
fake_driver(interpose_fake_driver_copy ${dir}/driver_copy FAKE_BASE=1000)

# libslipring with a recorder in place of plugin/.
set(map ${dir}/recorder.map)
add_custom_command(OUTPUT ${map}
  COMMAND ${CMAKE_C_COMPILER} -E -P -x c -I${PROJECT_SOURCE_DIR} -o ${map} ${CMAKE_CURRENT_SOURCE_DIR}/fake/exports.map.in
  DEPENDS fake/exports.map.in ${PROJECT_SOURCE_DIR}/interpose/gate.def ${PROJECT_SOURCE_DIR}/interpose/hooks.def VERBATIM)
add_custom_target(interpose_recorder_map DEPENDS ${map})
add_library(interpose_recorder OBJECT fake/recorder.c)
target_link_libraries(interpose_recorder PUBLIC slr_base)
slipring_library(slipring_recorder ${map} interpose_recorder slr_cache slr_base)
add_dependencies(slipring_recorder interpose_recorder_map)

foreach(vendor "nccl;2" "cublas;13" "cublasLt;13")
  list(GET vendor 0 name)
  list(GET vendor 1 version)
  add_library(interpose_fake_${name} SHARED fake/lib${name}.c)
  target_include_directories(interpose_fake_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(interpose_fake_${name} PRIVATE slipring_cuda_headers)
  set_target_properties(interpose_fake_${name} PROPERTIES OUTPUT_NAME ${name} SOVERSION ${version}
    C_VISIBILITY_PRESET default LIBRARY_OUTPUT_DIRECTORY ${dir}/driver)
  target_link_options(interpose_fake_${name} PRIVATE -Wl,-Bsymbolic)
endforeach()
foreach(id 1 2)
  add_library(interpose_next${id} SHARED fake/next.c)
  target_compile_definitions(interpose_next${id} PRIVATE NEXT_ID=${id})
  target_compile_options(interpose_next${id} PRIVATE -Wno-missing-prototypes -fno-optimize-sibling-calls) # is the caller
  set_target_properties(interpose_next${id} PROPERTIES C_VISIBILITY_PRESET default)
endforeach()

find_package(Threads REQUIRED)
foreach(program gate next api)
  add_executable(interpose_${program} interpose_${program}.c)
  target_include_directories(interpose_${program} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(interpose_${program} PRIVATE slipring_cuda_headers Threads::Threads ${CMAKE_DL_LIBS})
endforeach()
add_executable(interpose_loop interpose_loop.c)
target_include_directories(interpose_loop PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(interpose_loop PRIVATE interpose_fake_driver)

# preload_test(NAME LIBRARIES DRIVER COMMAND...): a test under LD_PRELOAD. A sanitizer's runtime has to come before everything else.
if(SLIPRING_SANITIZE MATCHES "address")
  set(runtime libasan.so)
elseif(SLIPRING_SANITIZE MATCHES "thread")
  set(runtime libtsan.so)
endif()
if(runtime)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=${runtime} OUTPUT_VARIABLE runtime
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${runtime}") # clang links its runtime into the program
    set(runtime)
  endif()
endif()
# The driver that notes its arguments gives no memory: the gate's tests run without the block cache.
function(preload_test name libraries driver)
  string(REGEX MATCH "^gate" program ${name})
  list(PREPEND libraries ${runtime})
  list(JOIN libraries ":" preload)
  add_test(NAME interpose_${name} COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${driver} SLIPRING_LOG=error
    "SLIPRING_ENABLE=$<IF:$<STREQUAL:${name},api_off>,off,on>"
    "SLIPRING_ALLOC=$<IF:$<STREQUAL:${program},gate>,off,all>" "SLIPRING_ZERO_COPY=$<IF:$<STREQUAL:${program},gate>,off,on>" LD_PRELOAD=${preload} ${ARGN})
  set_tests_properties(interpose_${name} PROPERTIES TIMEOUT 60)
endfunction()
set(recorder $<TARGET_FILE:slipring_recorder>)
set(next $<TARGET_FILE:interpose_next1> $<TARGET_FILE:interpose_next2>)
preload_test(gate ${recorder} ${dir}/driver $<TARGET_FILE:interpose_gate> all)
preload_test(gate_proc ${recorder} ${dir}/driver $<TARGET_FILE:interpose_gate> proc)
preload_test(gate_threads ${recorder} ${dir}/driver $<TARGET_FILE:interpose_gate> threads)
preload_test(gate_old ${recorder} ${dir}/driver_old $<TARGET_FILE:interpose_gate> old)
preload_test(gate_copy ${recorder} ${dir}/driver $<TARGET_FILE:interpose_gate> copy ${dir}/driver_copy/libcuda.so.1)
preload_test(next_before "${next};${recorder}" ${dir}/driver $<TARGET_FILE:interpose_next> before)
preload_test(next_after "${recorder};${next}" ${dir}/driver $<TARGET_FILE:interpose_next> after)
preload_test(api ${recorder} ${dir}/driver $<TARGET_FILE:interpose_api> on)
preload_test(api_off ${recorder} ${dir}/driver $<TARGET_FILE:interpose_api> off)
preload_test(api_absent ${recorder} ${dir}/driver $<TARGET_FILE:interpose_api> absent)
preload_test(plt ${recorder} ${dir}/driver $<TARGET_FILE:interpose_loop> launch 1000)

foreach(runtime_library softgpu_cudart softgpu_cudart_static)
  if(TARGET ${runtime_library})
    set(program interpose_runtime_${runtime_library})
    add_executable(${program} interpose_runtime.c)
    target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${program} PRIVATE slipring_cuda_headers ${runtime_library} Threads::Threads ${CMAKE_DL_LIBS})
    add_dependencies(${program} softgpu_cuda)
    preload_test(runtime_${runtime_library} ${recorder} ${SOFTGPU_DIR} $<TARGET_FILE:${program}>)
  endif()
endforeach()

set(here ${CMAKE_CURRENT_SOURCE_DIR})
add_test(NAME interpose_header COMMAND ${here}/interpose_header.sh ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER}
  ${SLIPRING_CUDA_INCLUDE})
add_test(NAME interpose_docs COMMAND ${here}/interpose_docs.sh ${PROJECT_SOURCE_DIR})
if(TARGET slipring)
  add_test(NAME interpose_exports COMMAND ${here}/interpose_exports.sh $<TARGET_FILE:slipring> ${PROJECT_SOURCE_DIR}
    ${CMAKE_C_COMPILER})
  if(NOT SLIPRING_SANITIZE)
    add_test(NAME interpose_harmless COMMAND ${here}/interpose_harmless.sh $<TARGET_FILE:slipring>)
    add_test(NAME interpose_cost COMMAND ${here}/interpose_cost.sh $<TARGET_FILE:slipring>
      $<TARGET_FILE:interpose_loop> ${dir}/driver launch=4 graph=10 alloc=20)
    set_tests_properties(interpose_cost PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endif()
