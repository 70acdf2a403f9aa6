# SPDX-License-Identifier: Apache-2.0
# The C API: in processes without CUDA, on the software GPU, linked and weak.

program(api_alone api_alone.c LIBS slipring)
# An unknown weak function has to stay unknown until the program starts, however it is linked.
foreach(kind pie no-pie)
  program(api_weak_${kind} api_alone.c)
  target_include_directories(api_weak_${kind} PRIVATE ${PROJECT_SOURCE_DIR}/plugin)
  target_compile_definitions(api_weak_${kind} PRIVATE SLIPRING_WEAK)
  target_compile_options(api_weak_${kind} PRIVATE -fPIE)
  target_link_options(api_weak_${kind} PRIVATE -${kind})
endforeach()

# Before NCCL, cuBLAS and the CUDA runtime in the link order; a linker that leaves out what seems not to be needed keeps it.
program(api_region api_region.c LIBS slipring forms ranks cudart cublas nccl)
# Not a word of slipring's API in it, and linked to it all the same.
program(api_linked ../programs/gather_matrix.c LIBS slipring ranks cudart cublas nccl)
# Behind them the program's calls do not reach it, as docs/install.md says.
program(api_behind ../programs/gather_matrix.c LIBS ranks cudart cublas nccl slipring)
target_link_options(api_behind PRIVATE -Wl,--no-as-needed)
target_link_options(api_region PRIVATE -Wl,--as-needed)
target_link_options(api_linked PRIVATE -Wl,--as-needed)
foreach(name region linked behind)
  # The stand-ins by LD_LIBRARY_PATH, as real ones
  set_target_properties(api_${name} PROPERTIES SKIP_BUILD_RPATH OFF BUILD_RPATH ${CMAKE_BINARY_DIR})
endforeach()

run(api_linked_alone 60 $<TARGET_FILE:api_alone>)
foreach(kind pie no-pie)
  run(api_weak_${kind} 60 ${run_sh} -- $<TARGET_FILE:api_weak_${kind}>)
  run(api_weak_${kind}_without 60 ${run_sh} --plain -- $<TARGET_FILE:api_weak_${kind}> none)
endforeach()
if(CMAKE_C_COMPILER_ID STREQUAL GNU) # and says so when it could not
  run(api_weak_refused 60 ${CMAKE_C_COMPILER} -DSLIPRING_WEAK -fno-pie -fsyntax-only -I${PROJECT_SOURCE_DIR}/plugin
    ${CMAKE_CURRENT_SOURCE_DIR}/api_alone.c PROPERTIES PASS_REGULAR_EXPRESSION "compile with -fPIE or -fPIC")
endif()
find_program(SLIPRING_CXX NAMES c++ g++ clang++)
foreach(form "" -DWEAK)
  if(SLIPRING_CXX)
    run(api_cxx${form} 60 ${SLIPRING_CXX} -std=c++11 -Wall -Wextra -Wpedantic -Wconversion -Werror -fPIE -fsyntax-only ${form}
      -I${PROJECT_SOURCE_DIR}/plugin ${CMAKE_CURRENT_SOURCE_DIR}/api_header.cpp)
  endif()
endforeach()
set(linked ${run_sh} --plain --set SLIPRING_MIN_BYTES=0)
run(api_linked 60 ${linked} --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\",\"op\":\"allgather\"" -- $<TARGET_FILE:api_linked> 2 5000)
run(api_behind 60 ${linked} --hasnt . -- $<TARGET_FILE:api_behind> 2 5000)
run(api_region_gathers 60 ${linked} --has "\"event\":\"pass\".*\"reason\":\"region\"" --hasnt "\"event\":\"pass\",\"op\":\"allgather\".*\"reason\":\"[^r]"
  -- $<TARGET_FILE:api_region> gathers 3)
run(api_region_gemms 60 ${linked} --has "\"event\":\"joined\".*\"reason\":\"gemm_region\"" --hasnt "\"event\":\"pass\",\"op\":\"allgather\""
  -- $<TARGET_FILE:api_region> gemms 2)
