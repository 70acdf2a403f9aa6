# SPDX-License-Identifier: Apache-2.0
# The race oracle of the software GPU (../../softgpu/driver/race.h): that it sees every kind of order and every lack of one; that the
# library's programs are free of races; that a mutant without one of its waits is not.

program(race_edges edges.c edges_graph.c edges_stream.c edges_word.c edges_memory.c edges_process.c edges_unused.c edges_lock.c LIBS cuda)
set_source_files_properties(edges_lock.c PROPERTIES COMPILE_DEFINITIONS __CUDA_API_VERSION_INTERNAL)
if(NOT SLIPRING_SANITIZE MATCHES thread) # which sees half of the programs race, and ends them
  add_test(NAME race_edges COMMAND race_edges)
  set_tests_properties(race_edges PROPERTIES TIMEOUT 120 LABELS race
    ENVIRONMENT "LD_LIBRARY_PATH=${SOFTGPU_DIR};LSAN_OPTIONS=detect_leaks=0") # they leave all to the exit
endif()

# ---- the library's programs: TEST_RACE=1 ctest -R '^(e2e|form|zero|symmetry|fault)_' runs all of them under the oracle; here is a part of each ----
set(each ${CMAKE_CURRENT_SOURCE_DIR}/each.sh)

set(gather --set SLIPRING_MIN_BYTES=0 --has "\"event\":\"substitute\"")
set(zero ${gather} --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_SLOT_BYTES=256K)

run(race_free_plain 300 ${run_sh} --plain -- $<TARGET_FILE:gather_matrix> 3 5000 ENV TEST_RACE=strict)
run(race_free_gather_small_slots 300 ${run_sh} ${gather} --set SLIPRING_SLOT_BYTES=16K -- $<TARGET_FILE:gather_matrix> 3 2000000 ENV TEST_RACE=strict)
run(race_free_gather_8 300 ${run_sh} ${gather} --set SLIPRING_SLOT_BYTES=64K -- $<TARGET_FILE:gather_matrix> 8 300000 ENV TEST_RACE=strict)
foreach(case bn at-beta)
  run(race_free_fuse_${case} 300 ${run_sh} ${gather} --set SLIPRING_CHUNKS=5 --has "\"event\":\"fused\"" -- $<TARGET_FILE:fuse> 3 ${case}
    ENV TEST_RACE=strict)
endforeach()
set(moves --set SLIPRING_ALLOC_MIN=1 --set SLIPRING_PROTOCOL=pull --set SLIPRING_FLOP_PER_BYTE=0)
foreach(case c-in-send c-in-send-written)
  run(race_free_fuse_${case} 300 ${run_sh} ${gather} ${moves} --set SLIPRING_CHUNKS=5 -- $<TARGET_FILE:fuse> 3 ${case} ENV TEST_RACE=strict)
endforeach()
set(beside --set SLIPRING_FLOP_PER_BYTE=0)
foreach(case both both-event-lt in-send captured-lt shared alone-event reads-result writes-operand-event third-event freed told told-event asked)
  run(race_free_aside_${case} 300 ${run_sh} ${gather} ${beside} -- $<TARGET_FILE:aside> 3 ${case} ENV TEST_RACE=strict)
endforeach()
run(race_free_order 300 ${run_sh} ${gather} --set SLIPRING_SLOT_BYTES=16K
  EACH forms_order copy-async,read-old-gemm,chain-all,graph,pool-reuse,group-beside-event,group-told-and-not,overtake-wait,overtake-event-wait-event,overtake-gemm,overtake-two-comms,overtake-event-alloc-free 2
  ENV TEST_RACE=strict)
run(race_free_groups 300 ${run_sh} ${gather} --set SLIPRING_SLOT_BYTES=16K EACH forms_groups several-streams,mixed,uneven 3 ENV TEST_RACE=strict)
run(race_free_comms 300 ${run_sh} ${gather} --set SLIPRING_SLOT_BYTES=16K EACH forms_comms init-all,threads,split-reversed,shrink,destroy-orders 3
  ENV TEST_RACE=strict)
foreach(protocol pull put)
  run(race_free_churn_${protocol} 300 ${run_sh} ${zero} --set SLIPRING_PROTOCOL=${protocol} -- $<TARGET_FILE:zero_churn> 3 90 stable
    ENV TEST_RACE=strict)
  run(race_free_turnover_${protocol} 300 ${run_sh} ${zero} --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC_BYTES=0
    -- $<TARGET_FILE:zero_blocks> 3 turnover 16 ENV TEST_RACE=strict)
  run(race_free_free_${protocol} 300 ${run_sh} ${zero} --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC_BYTES=0
    -- $<TARGET_FILE:zero_blocks> 3 free-in-flight 8 ENV TEST_RACE=strict)
  run(race_free_late_${protocol} 300 ${run_sh} ${zero} --set SLIPRING_PROTOCOL=${protocol} -- $<TARGET_FILE:zero_late> 3 next-gather
    ENV TEST_RACE=strict)
endforeach()

# ---- mutants (of ../order, ../programs and ../memory): without one of its waits the library races, however the machine runs it ----
set(caught_race ${CMAKE_CURRENT_SOURCE_DIR}/race_caught.sh --set SLIPRING_MIN_BYTES=0 --set RANKS_SECONDS=5)
foreach(row # MUTANT RANKS CASE PROGRAM
    "no_join 2 copy-async forms_order"
    "no_ready_wait 2 copy-async forms_order"
    "no_ready_wait_next 3 copy-async forms_order"
    "no_done_wait 2 copy-async forms_order"
    "no_entry_pull 2 read-old forms_order"
    "no_entry_publish 2 produce forms_order"
    "own_late 2 copy-async forms_order"
    "no_entry_own 2 produce forms_order"
    "carry_no_before 2 alloc-event forms_order"
    "carry_no_alloc 2 event-alloc-event forms_order"
    "skip_first_chunk 2 gemm forms_order"
    "skip_last_chunk 2 gemm forms_order"
    "early_done 2 copy-async forms_order"
    "no_publish_join 2 overwrite-memset forms_order"
    "group_no_join 2 group-on-its-stream forms_order"
    "group_no_partner 2 group-partner-sees forms_order"
    "overtake_gemm 2 overtake-gemm-send forms_order"
    "overtake_elsewhere 2 overtake-legacy-blocking forms_order"
    "no_meet 3 other-stream forms_groups"
    "no_cross 3 other-stream-slow forms_groups")
  separate_arguments(row)
  list(GET row 0 mutant)
  list(GET row 1 ranks)
  list(GET row 2 case)
  list(GET row 3 program)
  run(race_mutant_${mutant} 120 WITH ${mutant} ${caught_race} --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_FLOP_PER_BYTE=0
    -- $<TARGET_FILE:${program}> @ ${ranks} ENV TEST_RACE=strict CASES=${case})
endforeach()
run(race_mutant_vacated_not_awaited 120 WITH vacated_not_awaited ${caught_race} ${moves} --set RANKS_SECONDS=5 -- $<TARGET_FILE:fuse> 2 @
  ENV TEST_RACE=strict CASES=c-in-send)
run(race_mutant_vacated_forgotten 120 WITH vacated_forgotten ${caught_race} ${moves} -- $<TARGET_FILE:fuse> 2 @ ENV TEST_RACE=strict
  CASES=c-in-send-written)
run(race_mutant_vacated_staged_early 120 WITH vacated_staged_early ${caught_race} ${moves} --set RANKS_SECONDS=5 -- $<TARGET_FILE:fuse> 2 @
  ENV TEST_RACE=strict CASES=c-in-send)
run(race_mutant_vacated_aside 120 WITH vacated_aside ${caught_race} ${moves} --set RANKS_SECONDS=5 -- $<TARGET_FILE:fuse> 2 @ ENV TEST_RACE=strict
  CASES=c-in-send)
run(race_mutant_aside_not_behind 120 WITH aside_not_behind ${caught_race} ${beside} -- $<TARGET_FILE:aside> 2 @ ENV TEST_RACE=strict CASES=both-event)
run(race_mutant_aside_early 120 WITH aside_early ${caught_race} ${beside} -- $<TARGET_FILE:aside> 2 @ ENV TEST_RACE=strict CASES=both,alone)
run(race_mutant_aside_same_workspace 120 WITH aside_same_workspace ${caught_race} ${beside} -- $<TARGET_FILE:aside> 2 @ ENV TEST_RACE=strict
  CASES=both)
run(race_mutant_aside_not_awaited 120 WITH aside_not_awaited ${caught_race} ${beside} -- $<TARGET_FILE:aside> 2 @ ENV TEST_RACE=strict
  CASES=both,both-event-lt)
run(race_mutant_aside_unseen 120 WITH aside_unseen ${caught_race} ${beside} -- $<TARGET_FILE:aside> 2 @ ENV TEST_RACE=strict
  CASES=reads-result,writes-operand-event)
run(race_mutant_aside_not_joined 120 WITH aside_not_joined ${caught_race} ${beside} -- $<TARGET_FILE:aside> 2 @ ENV TEST_RACE=strict
  CASES=alone,alone-event)
run(race_mutant_aside_overtaken 120 WITH aside_overtaken ${caught_race} ${beside} -- $<TARGET_FILE:aside> 2 @ ENV TEST_RACE=strict
  CASES=third,third-event)
run(race_mutant_aside_untold 120 WITH aside_untold ${caught_race} ${beside} -- $<TARGET_FILE:aside> 2 @ ENV TEST_RACE=strict CASES=told)
run(race_mutant_aside_send_stays 120 WITH aside_send_stays ${caught_race} ${beside} -- $<TARGET_FILE:aside> 2 @ ENV TEST_RACE=strict
  CASES=in-send,in-send-lt)
run(race_mutant_aside_unasked 120 WITH aside_unasked ${caught_race} ${beside} -- $<TARGET_FILE:aside> 2 @ ENV TEST_RACE=strict CASES=asked,asked-event)
set(zero_set --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_SLOT_BYTES=256K)
run(race_mutant_zero_no_reader_wait 120 WITH zero_no_reader_wait ${caught_race} ${zero_set} --set SLIPRING_PROTOCOL=pull
  -- $<TARGET_FILE:zero_late> 2 @ ENV TEST_RACE=strict CASES=overwrite-memset)
run(race_mutant_zero_no_free_wait 120 WITH zero_no_free_wait ${caught_race} ${zero_set} --set SLIPRING_PROTOCOL=put -- $<TARGET_FILE:zero_late> 2 @
  ENV TEST_RACE=strict CASES=read-old)
