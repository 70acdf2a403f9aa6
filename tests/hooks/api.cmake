# SPDX-License-Identifier: Apache-2.0
# The C API: in processes without CUDA, on the software GPU, linked and weak.
set(run ${CMAKE_CURRENT_SOURCE_DIR}/../programs/run.sh)

add_executable(api_alone api_alone.c)
target_link_libraries(api_alone PRIVATE slipring pthread)
# An unknown weak function has to stay unknown until the program starts, however it is linked.
foreach(kind pie no-pie)
  add_executable(api_weak_${kind} api_alone.c)
  target_include_directories(api_weak_${kind} PRIVATE ${PROJECT_SOURCE_DIR}/plugin)
  target_compile_definitions(api_weak_${kind} PRIVATE SLIPRING_WEAK)
  target_link_libraries(api_weak_${kind} PRIVATE pthread)
  target_compile_options(api_weak_${kind} PRIVATE -fPIE)
  target_link_options(api_weak_${kind} PRIVATE -${kind})
endforeach()

# Before NCCL, cuBLAS and the CUDA runtime in the link order; a linker that leaves out what seems not to be needed keeps it.
add_executable(api_region api_region.c)
target_link_libraries(api_region PRIVATE slipring forms_common softgpu_cudart softgpu_cublas softgpu_nccl pthread)
target_link_options(api_region PRIVATE -Wl,--as-needed -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs)
# Not a word of slipring's API in it, and linked to it all the same.
add_executable(api_linked ../programs/gather_matrix.c $<TARGET_OBJECTS:tests_ranks>)
target_link_libraries(api_linked PRIVATE slipring slipring_cuda_headers softgpu_cudart softgpu_cublas softgpu_nccl pthread)
target_link_options(api_linked PRIVATE -Wl,--as-needed -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs)
# Behind them the program's calls do not reach it, as docs/install.md says.
add_executable(api_behind ../programs/gather_matrix.c $<TARGET_OBJECTS:tests_ranks>)
target_link_libraries(api_behind PRIVATE slipring_cuda_headers softgpu_cudart softgpu_cublas softgpu_nccl pthread slipring)
target_link_options(api_behind PRIVATE -Wl,--no-as-needed -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs)
foreach(program region linked behind) # the stand-ins by LD_LIBRARY_PATH, as real ones
  set_target_properties(api_${program} PROPERTIES SKIP_BUILD_RPATH OFF BUILD_RPATH ${CMAKE_BINARY_DIR})
endforeach()

function(api_test name)
  add_test(NAME api_${name} COMMAND ${ARGN})
  set_tests_properties(api_${name} PROPERTIES TIMEOUT 60 LABELS api ENVIRONMENT
    "SOFTGPU_DIR=${SOFTGPU_DIR};SLIPRING_LIB=$<TARGET_FILE:slipring>;TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST}")
endfunction()
api_test(linked_alone $<TARGET_FILE:api_alone>)
foreach(kind pie no-pie)
  api_test(weak_${kind} ${run} -- $<TARGET_FILE:api_weak_${kind}>)
  api_test(weak_${kind}_without ${run} --plain -- $<TARGET_FILE:api_weak_${kind}> none)
endforeach()
if(CMAKE_C_COMPILER_ID STREQUAL GNU) # and says so when it could not
  api_test(weak_refused ${CMAKE_C_COMPILER} -DSLIPRING_WEAK -fno-pie -fsyntax-only -I${PROJECT_SOURCE_DIR}/plugin ${CMAKE_CURRENT_SOURCE_DIR}/api_alone.c)
  set_tests_properties(api_weak_refused PROPERTIES PASS_REGULAR_EXPRESSION "compile with -fPIE or -fPIC")
endif()
find_program(SLIPRING_CXX NAMES c++ g++ clang++)
foreach(form "" -DWEAK)
  if(SLIPRING_CXX)
    api_test(cxx${form} ${SLIPRING_CXX} -std=c++11 -Wall -Wextra -Wpedantic -Wconversion -Werror -fPIE -fsyntax-only ${form} -I${PROJECT_SOURCE_DIR}/plugin
      ${CMAKE_CURRENT_SOURCE_DIR}/api_header.cpp)
  endif()
endforeach()
set(linked ${run} --plain --set SLIPRING_MIN_BYTES=0)
api_test(linked ${linked} --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\"" -- $<TARGET_FILE:api_linked> 2 5000)
api_test(behind ${linked} --hasnt . -- $<TARGET_FILE:api_behind> 2 5000)
api_test(region_gathers ${linked} --has "\"event\":\"pass\".*\"reason\":\"region\"" --hasnt "\"event\":\"pass\".*\"reason\":\"[^r]" -- $<TARGET_FILE:api_region> gathers 3)
api_test(region_gemms ${linked} --has "\"event\":\"joined\".*\"reason\":\"gemm_region\"" --hasnt "\"event\":\"pass\"" -- $<TARGET_FILE:api_region> gemms 2)
