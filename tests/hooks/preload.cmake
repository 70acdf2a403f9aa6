# SPDX-License-Identifier: Apache-2.0
# The hooks under LD_PRELOAD: programs that know nothing of slipring, on a driver that notes what reaches it.
set(dir ${CMAKE_CURRENT_BINARY_DIR})

# -Bsymbolic: as the real one, it does not call through hooks.
foreach(kind "" _old _copy)
  program(interpose_fake_driver${kind} fake/libcuda.c SHARED)
  set_target_properties(interpose_fake_driver${kind} PROPERTIES OUTPUT_NAME cuda SOVERSION 1 C_VISIBILITY_PRESET default
    LIBRARY_OUTPUT_DIRECTORY ${dir}/driver${kind})
  # Versions for dlvsym; they also show that the unversioned exports of libslipring interpose versioned references.
  target_link_options(interpose_fake_driver${kind} PRIVATE -Wl,-Bsymbolic -Wl,--default-symver)
endforeach()
target_compile_definitions(interpose_fake_driver_old PRIVATE FAKE_LAUNCH_ONLY)
target_compile_definitions(interpose_fake_driver_copy PRIVATE FAKE_BASE=1000)

# libslipring with a recorder in place of plugin/.
set(map ${dir}/recorder.map)
add_custom_command(OUTPUT ${map}
  COMMAND ${CMAKE_C_COMPILER} -E -P -x c -I${PROJECT_SOURCE_DIR} -o ${map} ${CMAKE_CURRENT_SOURCE_DIR}/fake/exports.map.in
  DEPENDS fake/exports.map.in ${PROJECT_SOURCE_DIR}/interpose/gate.def ${PROJECT_SOURCE_DIR}/base/hooks.def VERBATIM)
add_custom_target(interpose_recorder_map DEPENDS ${map})
add_library(interpose_recorder OBJECT fake/recorder.c)
target_link_libraries(interpose_recorder PUBLIC slr_base)
slipring_library(slipring_recorder ${map} interpose_recorder slr_cache slr_base)
add_dependencies(slipring_recorder interpose_recorder_map)

foreach(vendor "nccl;2" "cublas;13" "cublasLt;13")
  list(GET vendor 0 name)
  list(GET vendor 1 version)
  program(interpose_fake_${name} fake/lib${name}.c SHARED)
  set_target_properties(interpose_fake_${name} PROPERTIES OUTPUT_NAME ${name} SOVERSION ${version}
    C_VISIBILITY_PRESET default LIBRARY_OUTPUT_DIRECTORY ${dir}/driver)
  target_link_options(interpose_fake_${name} PRIVATE -Wl,-Bsymbolic)
endforeach()
foreach(id 1 2)
  program(interpose_next${id} fake/next.c SHARED)
  target_compile_definitions(interpose_next${id} PRIVATE NEXT_ID=${id})
  target_compile_options(interpose_next${id} PRIVATE -Wno-missing-prototypes -fno-optimize-sibling-calls) # is the caller
  set_target_properties(interpose_next${id} PROPERTIES C_VISIBILITY_PRESET default)
endforeach()

foreach(name gate next api)
  program(interpose_${name} interpose_${name}.c)
endforeach()
program(interpose_loop interpose_loop.c LIBS interpose_fake_driver)

# A sanitizer's runtime has to come before everything else.
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
set(recorder $<TARGET_FILE:slipring_recorder>)
set(next $<TARGET_FILE:interpose_next1>:$<TARGET_FILE:interpose_next2>)
set(next_recorder ${next}:${recorder})
set(recorder_next ${recorder}:${next})
set(runtimes "")
foreach(library softgpu_cudart softgpu_cudart_static)
  if(TARGET ${library})
    add_executable(interpose_runtime_${library} interpose_runtime.c)
    target_link_libraries(interpose_runtime_${library} PRIVATE slipring_cuda_headers ${library} pthread ${CMAKE_DL_LIBS})
    add_dependencies(interpose_runtime_${library} softgpu_cuda)
    list(APPEND runtimes "runtime_${library} recorder softgpu runtime_${library}")
  endif()
endforeach()
foreach(row # NAME, what is preloaded, folder of the driver (paths by name: they may have spaces), program and its arguments
    "gate recorder driver gate all"
    "gate_proc recorder driver gate proc"
    "gate_threads recorder driver gate threads"
    "gate_old recorder driver_old gate old"
    "gate_copy recorder driver gate copy"
    "next_before next_recorder driver next before"
    "next_after recorder_next driver next after"
    "api recorder driver api on"
    "api_off recorder driver api off"
    "api_absent recorder driver api absent"
    "plt recorder driver loop launch 1000"
    ${runtimes})
  separate_arguments(row)
  list(POP_FRONT row name preload driver program)
  set(preload ${${preload}})
  set(driver ${dir}/${driver})
  if(name MATCHES "^runtime")
    set(driver ${SOFTGPU_DIR})
  elseif(name STREQUAL gate_copy)
    list(APPEND row ${dir}/driver_copy/libcuda.so.1)
  endif()
  set(enable on)
  if(name STREQUAL api_off)
    set(enable off)
  endif()
  set(alloc SLIPRING_ALLOC=all SLIPRING_ZERO_COPY=on)
  if(name MATCHES "^gate") # the driver that notes its arguments gives no memory
    set(alloc SLIPRING_ALLOC=off SLIPRING_ZERO_COPY=off)
  endif()
  if(runtime)
    set(preload ${runtime}:${preload})
  endif()
  add_test(NAME interpose_${name} COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${driver} SLIPRING_LOG=error SLIPRING_ENABLE=${enable} ${alloc}
    LD_PRELOAD=${preload} $<TARGET_FILE:interpose_${program}> ${row})
  set_tests_properties(interpose_${name} PROPERTIES TIMEOUT 60)
endforeach()

set(here ${CMAKE_CURRENT_SOURCE_DIR})
add_test(NAME interpose_header COMMAND ${here}/interpose_header.sh ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER}
  ${SLIPRING_CUDA_INCLUDE})
add_test(NAME interpose_docs COMMAND ${here}/interpose_docs.sh ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER})
if(TARGET slipring)
  add_test(NAME interpose_exports COMMAND ${here}/interpose_exports.sh $<TARGET_FILE:slipring> ${PROJECT_SOURCE_DIR}
    ${CMAKE_C_COMPILER})
  if(NOT SLIPRING_SANITIZE)
    add_test(NAME interpose_harmless COMMAND ${here}/interpose_harmless.sh $<TARGET_FILE:slipring>)
    add_test(NAME interpose_cost COMMAND ${here}/interpose_cost.sh $<TARGET_FILE:slipring>
      $<TARGET_FILE:interpose_loop> ${dir}/driver launch=4 graph=10 alloc=20 async=32 pointer=20)
    set_tests_properties(interpose_cost PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endif()
