# SPDX-License-Identifier: Apache-2.0
# The race oracle of the software GPU (../softgpu/driver/race.h): that it sees every kind of order and every lack of one; that the
# library's programs are free of races; that a mutant without one of its waits is not.
set(race_env "SOFTGPU_DIR=${SOFTGPU_DIR};TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST};TEST_RACE=strict")

add_executable(race_edges edges.c edges_graph.c edges_stream.c edges_word.c edges_memory.c edges_process.c edges_unused.c edges_lock.c)
set_source_files_properties(edges_lock.c PROPERTIES COMPILE_DEFINITIONS __CUDA_API_VERSION_INTERNAL)
target_link_libraries(race_edges PRIVATE slipring_cuda_headers softgpu_cuda pthread)
if(NOT SLIPRING_SANITIZE MATCHES thread) # which sees half of the programs race, and ends them
  add_test(NAME race_edges COMMAND race_edges)
  set_tests_properties(race_edges PROPERTIES TIMEOUT 120 LABELS race
    ENVIRONMENT "LD_LIBRARY_PATH=${SOFTGPU_DIR};LSAN_OPTIONS=detect_leaks=0") # they leave all to the exit
endif()

# ---- the library's programs: TEST_RACE=1 ctest -R '^(e2e|form|zero|symmetry|fault)_' runs all of them under the oracle; here is a part of each ----
set(run ${CMAKE_CURRENT_SOURCE_DIR}/../programs/run.sh)
set(each ${CMAKE_CURRENT_SOURCE_DIR}/each.sh)

# race_free(NAME COMMAND...)
function(race_free name)
  add_test(NAME race_free_${name} COMMAND ${ARGN})
  set_tests_properties(race_free_${name} PROPERTIES TIMEOUT 300 LABELS race ENVIRONMENT "${race_env};SLIPRING_LIB=$<TARGET_FILE:slipring>")
endfunction()
set(gather --set SLIPRING_MIN_BYTES=0 --has "\"event\":\"substitute\"")
set(zero ${gather} --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_SLOT_BYTES=256K)

race_free(plain ${run} --plain -- $<TARGET_FILE:gather_matrix> 3 5000)
race_free(gather_small_slots ${run} ${gather} --set SLIPRING_SLOT_BYTES=16K -- $<TARGET_FILE:gather_matrix> 3 2000000)
race_free(gather_8 ${run} ${gather} --set SLIPRING_SLOT_BYTES=64K -- $<TARGET_FILE:gather_matrix> 8 300000)
foreach(case bn at-beta)
  race_free(fuse_${case} ${run} ${gather} --set SLIPRING_CHUNKS=5 --has "\"event\":\"fused\"" -- $<TARGET_FILE:fuse> 3 ${case})
endforeach()
set(moves --set SLIPRING_ALLOC_MIN=1 --set SLIPRING_PROTOCOL=pull --set SLIPRING_FLOP_PER_BYTE=0)
foreach(case c-in-send c-in-send-written)
  race_free(fuse_${case} ${run} ${gather} ${moves} --set SLIPRING_CHUNKS=5 -- $<TARGET_FILE:fuse> 3 ${case})
endforeach()
set(beside --set SLIPRING_FLOP_PER_BYTE=0)
foreach(case both both-event-lt in-send captured-lt shared alone-event reads-result writes-operand-event third-event freed told told-event asked)
  race_free(aside_${case} ${run} ${gather} ${beside} -- $<TARGET_FILE:aside> 3 ${case})
endforeach()
race_free(order ${each} $<TARGET_FILE:forms_order>
  copy-async,read-old-gemm,chain-all,graph,pool-reuse,group-beside-event,group-told-and-not,overtake-wait,overtake-event-wait-event,overtake-gemm,overtake-two-comms,overtake-event-alloc-free 2 --
  ${run} ${gather} --set SLIPRING_SLOT_BYTES=16K)
race_free(groups ${each} $<TARGET_FILE:forms_groups> several-streams,mixed,uneven 3 --
  ${run} ${gather} --set SLIPRING_SLOT_BYTES=16K)
race_free(comms ${each} $<TARGET_FILE:forms_comms> init-all,threads,split-reversed,shrink,destroy-orders 3 --
  ${run} ${gather} --set SLIPRING_SLOT_BYTES=16K)
foreach(protocol pull put)
  race_free(churn_${protocol} ${run} ${zero} --set SLIPRING_PROTOCOL=${protocol} -- $<TARGET_FILE:zero_churn> 3 90 stable)
  race_free(turnover_${protocol} ${run} ${zero} --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC_BYTES=0 --
    $<TARGET_FILE:zero_blocks> 3 turnover 16)
  race_free(free_${protocol} ${run} ${zero} --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC_BYTES=0 --
    $<TARGET_FILE:zero_blocks> 3 free-in-flight 8)
  race_free(late_${protocol} ${run} ${zero} --set SLIPRING_PROTOCOL=${protocol} -- $<TARGET_FILE:zero_late> 3 next-gather)
endforeach()

# ---- mutants (of ../order, ../programs and ../memory): without one of its waits the library races, however the machine runs it ----
# race_mutant(NAME MUTANT CASES run.sh-arguments...): NAME without its prefix; @ stands for the case
function(race_mutant name target cases)
  if(SLIPRING_SANITIZE)
    return()
  endif()
  add_test(NAME race_mutant_${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/race_caught.sh --set SLIPRING_MIN_BYTES=0 ${ARGN})
  set_tests_properties(race_mutant_${name} PROPERTIES TIMEOUT 120 LABELS race
    ENVIRONMENT "${race_env};SLIPRING_LIB=$<TARGET_FILE:${target}>;CASES=${cases}")
endfunction()
# order_mutant(NAME RANKS CASES [PROGRAM])
function(order_mutant name ranks cases)
  set(program forms_order)
  if(ARGN)
    set(program ${ARGN})
  endif()
  race_mutant(${name} mutant_${name} ${cases} --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_FLOP_PER_BYTE=0 -- $<TARGET_FILE:${program}> @ ${ranks})
endfunction()
order_mutant(no_join 2 copy-async)
order_mutant(no_ready_wait 2 copy-async)
order_mutant(no_ready_wait_next 3 copy-async)
order_mutant(no_done_wait 2 copy-async)
order_mutant(no_entry_pull 2 read-old)
order_mutant(no_entry_publish 2 produce)
order_mutant(own_late 2 copy-async)
order_mutant(no_entry_own 2 produce)
order_mutant(carry_no_before 2 alloc-event)
order_mutant(carry_no_alloc 2 event-alloc-event)
order_mutant(skip_first_chunk 2 gemm)
order_mutant(skip_last_chunk 2 gemm)
order_mutant(early_done 2 copy-async)
order_mutant(no_publish_join 2 overwrite-memset)
order_mutant(group_no_join 2 group-on-its-stream)
order_mutant(group_no_partner 2 group-partner-sees)
order_mutant(overtake_gemm 2 overtake-gemm-send)
order_mutant(overtake_elsewhere 2 overtake-legacy-blocking)
order_mutant(no_meet 3 other-stream forms_groups)
order_mutant(no_cross 3 other-stream-slow forms_groups)
race_mutant(vacated_not_awaited mutant_vacated_not_awaited c-in-send ${moves} --set RANKS_SECONDS=5 -- $<TARGET_FILE:fuse> 2 @)
race_mutant(vacated_forgotten mutant_vacated_forgotten c-in-send-written ${moves} -- $<TARGET_FILE:fuse> 2 @)
race_mutant(vacated_staged_early mutant_vacated_staged_early c-in-send ${moves} --set RANKS_SECONDS=5 -- $<TARGET_FILE:fuse> 2 @)
race_mutant(vacated_aside mutant_vacated_aside c-in-send ${moves} --set RANKS_SECONDS=5 -- $<TARGET_FILE:fuse> 2 @)
race_mutant(aside_not_behind mutant_aside_not_behind both-event ${beside} -- $<TARGET_FILE:aside> 2 @)
race_mutant(aside_early mutant_aside_early both,alone ${beside} -- $<TARGET_FILE:aside> 2 @)
race_mutant(aside_same_workspace mutant_aside_same_workspace both ${beside} -- $<TARGET_FILE:aside> 2 @)
race_mutant(aside_not_awaited mutant_aside_not_awaited both,both-event-lt ${beside} -- $<TARGET_FILE:aside> 2 @)
race_mutant(aside_unseen mutant_aside_unseen reads-result,writes-operand-event ${beside} -- $<TARGET_FILE:aside> 2 @)
race_mutant(aside_not_joined mutant_aside_not_joined alone,alone-event ${beside} -- $<TARGET_FILE:aside> 2 @)
race_mutant(aside_overtaken mutant_aside_overtaken third,third-event ${beside} -- $<TARGET_FILE:aside> 2 @)
race_mutant(aside_untold mutant_aside_untold told ${beside} -- $<TARGET_FILE:aside> 2 @)
race_mutant(aside_send_stays mutant_aside_send_stays in-send,in-send-lt ${beside} -- $<TARGET_FILE:aside> 2 @)
race_mutant(aside_unasked mutant_aside_unasked asked,asked-event ${beside} -- $<TARGET_FILE:aside> 2 @)
set(zero_set --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_SLOT_BYTES=256K)
race_mutant(zero_no_reader_wait mutant_zero_no_reader_wait overwrite-memset ${zero_set} --set SLIPRING_PROTOCOL=pull --
  $<TARGET_FILE:zero_late> 2 @)
race_mutant(zero_no_open_wait mutant_zero_no_open_wait read-old ${zero_set} --set SLIPRING_PROTOCOL=put -- $<TARGET_FILE:zero_late> 2 @)
