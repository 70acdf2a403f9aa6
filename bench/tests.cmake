# SPDX-License-Identifier: Apache-2.0
# Short exact runs of ag_gemm on the software GPU, without slipring.
function(ag_gemm_test name)
  add_test(NAME bench_ag_gemm_${name} COMMAND ag_gemm --iters 3 --warmup 1 --timeout 60 --check full --poison ${ARGN})
  set_tests_properties(bench_ag_gemm_${name} PROPERTIES TIMEOUT 90 LABELS softgpu
    ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/softgpu;SOFTGPU_DEVICES=4")
endfunction()

set(AG_SMALL --m 40 --n 36 --k 48)
foreach(form bn at)
  foreach(dtype bf16 fp16 fp32 fp64)
    ag_gemm_test(${form}_${dtype} --ranks 3 --form ${form} --dtype ${dtype} ${AG_SMALL})
  endforeach()
endforeach()
ag_gemm_test(sgemm --ranks 2 --dtype fp32 --api sgemm ${AG_SMALL})
ag_gemm_test(dgemm --ranks 2 --dtype fp64 --api dgemm ${AG_SMALL})
ag_gemm_test(hgemm --ranks 2 --dtype fp16 --api hgemm ${AG_SMALL})
ag_gemm_test(batched --ranks 2 --api batched ${AG_SMALL})
ag_gemm_test(lt --ranks 2 --api lt --form at --beta 2 ${AG_SMALL})
ag_gemm_test(lt_bias_bn --ranks 3 --api lt-bias ${AG_SMALL})
ag_gemm_test(lt_bias_at --ranks 2 --api lt-bias --form at --dtype fp64 --beta 2 ${AG_SMALL})
foreach(dtype bf16 fp16 fp32 fp64)
  ag_gemm_test(an_${dtype} --ranks 3 --form an --dtype ${dtype} --beta 1 ${AG_SMALL})
endforeach()
ag_gemm_test(an_odd --ranks 2 --form an --m 17 --n 33 --k 38 --in-place --api batched)
ag_gemm_test(an_write --ranks 2 --form an --interpose-op write --check sample ${AG_SMALL})
ag_gemm_test(ilp64 --ranks 2 --ilp64 ${AG_SMALL})
ag_gemm_test(sgemm_ilp64 --ranks 2 --dtype fp32 --api sgemm --ilp64 ${AG_SMALL})
ag_gemm_test(int8 --ranks 3 --dtype int8 ${AG_SMALL})
ag_gemm_test(one_byte --ranks 4 --bytes 1)
ag_gemm_test(three_bytes --ranks 3 --bytes 3 --in-place)
ag_gemm_test(odd_megabyte --ranks 2 --bytes 1048581)
ag_gemm_test(in_place --ranks 3 --in-place ${AG_SMALL})
ag_gemm_test(odd_n --ranks 2 --m 17 --n 33 --k 19 --beta 2)
ag_gemm_test(ld_pad --ranks 2 --form at --ld-pad 5 --in-place ${AG_SMALL})
ag_gemm_test(memset_between --ranks 2 --interpose-op memset ${AG_SMALL})
ag_gemm_test(copy_between --ranks 2 --interpose-op copy ${AG_SMALL})
ag_gemm_test(write_between --ranks 2 --interpose-op write ${AG_SMALL})
ag_gemm_test(threads --threads 3 ${AG_SMALL})
ag_gemm_test(default_stream --ranks 2 --default-stream ${AG_SMALL})
ag_gemm_test(side_stream --ranks 2 --side-stream --streams 2 ${AG_SMALL})
ag_gemm_test(streams_and_comms --ranks 2 --streams 3 --comms 2 --burst 3 ${AG_SMALL})
ag_gemm_test(comms --ranks 2 --streams 1 --comms 2 ${AG_SMALL})
ag_gemm_test(sample --ranks 2 --check sample --m 256 --n 300 --k 128)
ag_gemm_test(unchecked --ranks 2 --check off ${AG_SMALL})
ag_gemm_test(one_rank --ranks 1 ${AG_SMALL})
ag_gemm_test(one_gpu --ranks 2 --one-gpu ${AG_SMALL})

# The software GPU's GEMM sums alike for parts of the same shape: ranks must not differ.
add_test(NAME bench_replicas COMMAND replicas --divide 64)
set_tests_properties(bench_replicas PROPERTIES TIMEOUT 120 LABELS softgpu
  ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/softgpu")

add_test(NAME bench_floor COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test/floor.sh $<TARGET_FILE:floor>)
set_tests_properties(bench_floor PROPERTIES TIMEOUT 240 LABELS softgpu
  ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/softgpu;SOFTGPU_DEVICES=2")

# What goes wrong must end, with the right status and words.
add_test(NAME bench_ag_gemm_faults COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test/faults.sh $<TARGET_FILE:ag_gemm>)
add_test(NAME bench_ag_gemm_environment
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test/environment.sh $<TARGET_FILE:ag_gemm>)
add_test(NAME bench_pair COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test/pair.sh ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR}/LD_PRELOAD/slipring)
set_tests_properties(bench_ag_gemm_faults bench_ag_gemm_environment bench_pair PROPERTIES TIMEOUT 120
  LABELS softgpu ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/softgpu;SOFTGPU_DEVICES=4")

# Python can not load libraries with a sanitizer's runtime, which have to come first.
if(NOT SLIPRING_SANITIZE)
  add_test(NAME bench_peers COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test/peers.sh ${CMAKE_BINARY_DIR} $<TARGET_FILE:mutant_short_copy>)
  add_test(NAME bench_cores COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test/cores.py)
  add_test(NAME bench_never_slower COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test/never_slower.sh ${CMAKE_BINARY_DIR})
  add_test(NAME bench_models COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test/models.sh ${CMAKE_BINARY_DIR})
  add_test(NAME bench_graphs COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test/graphs.sh)
  add_test(NAME bench_steady COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test/steady.sh ${CMAKE_BINARY_DIR})
  add_test(NAME bench_modelled_node COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/test/modelled.sh ${CMAKE_BINARY_DIR})
  set_tests_properties(bench_peers bench_cores bench_never_slower bench_models bench_steady bench_graphs bench_modelled_node PROPERTIES COST 20 TIMEOUT 240
    LABELS softgpu ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/softgpu;SOFTGPU_DEVICES=2")
endif()

add_executable(ag_data_test test/data_test.c ag_data.c)
target_include_directories(ag_data_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(ag_data_test PRIVATE slr_tools slr_criterion m) # defined in tests/unit
add_test(NAME bench_ag_gemm_data COMMAND ag_data_test)
