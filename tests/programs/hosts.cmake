# SPDX-License-Identifier: Apache-2.0
# Communicators that span hosts (SLIPRING_HOSTS). This machine is taken for several of them, by TEST_HOSTS: ranks.h.
set(over ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_HOSTS=on)
set(spans --has "\"decision\":\"hosts\"")
set(two ${over} --set TEST_HOSTS=2 ${spans}) # ranks on each host
set(judged ${two}) # with the label race: what passes under sanitizers, without the oracle, is to run with it as well
if(NOT SLIPRING_SANITIZE)
  list(APPEND judged --set TEST_RACE=strict)
endif()

# ---- gathers ----
set(layouts "2 4" "2 6" "4 8" "2 8" "0,0,1,1,0,0 6")
set(ways SLOT_BYTES=8K PROTOCOL=put CHUNKS=5)
set(apart_rows "alone 1 2 hosts have one rank each" "uneven 0,0,1 3 different numbers" "turns 0,1,0,1 4 (one behind the other|one rank each)"
  "split 0,0,1,2 4 one behind the other")
if(SLIPRING_SANITIZE)
  set(layouts "2 6")
  set(ways CHUNKS=5)
  set(apart_rows "uneven 0,0,1 3 different numbers")
endif()
foreach(row IN LISTS layouts)
  separate_arguments(row)
  list(POP_FRONT row per n)
  string(MAKE_C_IDENTIFIER by_${per} by)
  run(hosts_gather_${n}_${by} 120 ${over} --set TEST_HOSTS=${per} ${spans} --has "\"reason\":\"hosts\"" --hasnt "\"reason\":\"rank_absent\""
    -- $<TARGET_FILE:gather_matrix> ${n} 2000000)
endforeach()
foreach(set IN LISTS ways)
  string(MAKE_C_IDENTIFIER ${set} short)
  run(hosts_gather_${short} 60 ${judged} --set SLIPRING_${set} -- $<TARGET_FILE:gather_matrix> 4 100000 LABELS hosts race)
endforeach()
set(verified --set SLIPRING_VERIFY=2 --set SLIPRING_LOG=debug --has "\"event\":\"verified\"" --hasnt "not_verified|verify_differs")
run(hosts_verified 60 ${judged} ${verified} EACH forms_order copy-async,gemm,event-framework,send-recv 4)
run(hosts_verified_later 60 LIB ${nonblocking} ${two} ${verified} EACH forms_order copy-async,gemm 4)
run(hosts_gather_below_min 60 ${two} --set SLIPRING_MIN_BYTES=1G --has "below_min_bytes" --hasnt "\"reason\":\"hosts\"" -- $<TARGET_FILE:gather_matrix> 4 5000)
# There is room for the smallest slots alone: a host's part of larger gathers is NCCL's.
set(no_room --set SLIPRING_CACHE_BYTES=8K --has "\"reason\":\"no_staging\"")
run(hosts_gather_no_room 60 ${judged} ${no_room} -- $<TARGET_FILE:gather_matrix> 4 2000000 LABELS hosts race)
run(hosts_gather_no_room_by_three 60 ${over} --set TEST_HOSTS=3 ${spans} ${no_room} -- $<TARGET_FILE:gather_matrix> 6 2000000)

# What does not become hosts stays with NCCL, and is right.
set(apart --hasnt "\"decision\":\"hosts\"" --has "\"reason\":\"several_hosts\"" --hasnt "\"level\":\"warn\"")
foreach(row IN LISTS apart_rows)
  separate_arguments(row)
  list(POP_FRONT row name of n)
  list(JOIN row " " why)
  set(of_${name} ${over} --set TEST_HOSTS=${of} --set SLIPRING_AGREE_TIMEOUT=2s ${apart} --has "\"event\":\"hosts_off\".*${why}"
    -- $<TARGET_FILE:gather_matrix> ${n} 5000)
  run(hosts_not_${name} 60 ${of_${name}})
endforeach()
# All of one host: a ring.
run(hosts_one 60 ${over} --set TEST_HOSTS=4 ${ring_only} --has "\"decision\":\"ring\"" --hasnt "hosts_off" -- $<TARGET_FILE:gather_matrix> 4 5000)

# ---- what comes before what ----
set(order_cases list) # those in which a missing join shows; and below
if(SLIPRING_SANITIZE)
  set(order_cases copy-async,gemm,overwrite-memset,event-framework,comm-broadcast,group-each,overtake-gemm-send)
endif()
run(hosts_order 300 ${judged} --set SLIPRING_FLOP_PER_BYTE=0 EACH forms_order ${order_cases} 4 LABELS hosts slow PROPERTIES COST 40)
run(hosts_order_more 120 ${judged} --set SLIPRING_FLOP_PER_BYTE=0 EACH forms_order
  gemm,gemm-after-event,event-framework,event-gemm-blocking,comm-broadcast,comm-gather,comm-produce,comm-two,group-each,overtake-gemm,small-gemm,small-event 4
  LABELS hosts race)
set(group_cases one-stream,made-late,several-streams,own-streams,several-comms,mixed,other-stream,uneven,nested)
run(hosts_groups 120 ${judged} EACH forms_groups ${group_cases} 4 LABELS hosts race)
run(hosts_groups_verified 120 ${two} --set SLIPRING_VERIFY=1 EACH forms_groups one-stream,several-streams,mixed 4)
run(hosts_groups_by_three 120 ${over} --set TEST_HOSTS=3 ${spans} EACH forms_groups ${group_cases},error-inside,empty,in-progress,configured 6)
run(hosts_groups_no_room 120 ${judged} ${no_room} EACH forms_groups one-stream,made-late,several-streams,mixed "4 2000000" LABELS hosts race)
run(hosts_comms 120 ${two}
  EACH forms_comms config,scalable,split-colour,split-reversed,shrink,many-in-group,finalize,destroy-at-once,destroy-orders,destroy-late 4)
# Split off from one that spans hosts.
set(child ${spans} --has "\"nranks\":4,\"decision\":\"hosts\",\"hosts\":2,\"per_host\":2")
run(hosts_split_colour 60 ${over} --set TEST_HOSTS=4 ${child} -- $<TARGET_FILE:forms_comms> split-colour 8)
foreach(case split-some split-in-group split-of-split-some)
  set(of_${case} ${over} --set TEST_HOSTS=3 ${child} -- $<TARGET_FILE:forms_comms> ${case} 6)
  run(hosts_${case} 60 ${of_${case}})
endforeach()
# A rank comes later than the others wait for: NCCL makes the shadow all the same, when they have given up.
set(of_late ${over} --set TEST_HOSTS=3 ${spans} --set SLIPRING_AGREE_TIMEOUT=500ms --set TEST_RANK_ENV=5:SOFTGPU_FAIL=cuMemAllocAsync:2=sleep1500
  --has "not all ranks have come" -- $<TARGET_FILE:forms_comms> split-some 6)
run(hosts_split_late 60 ${of_late})
run(hosts_later_split 60 LIB ${nonblocking} ${over} --set TEST_HOSTS=3 ${child} EACH forms_comms split-some,split-in-group 6)
run(hosts_later 120 LIB ${nonblocking} ${two} EACH forms_order copy-async,gemm,overwrite-memset,event-gemm-blocking,send-recv 4 ENV TEST_RACE=1)
run(hosts_later_groups 120 LIB ${nonblocking} ${two} EACH forms_groups ${group_cases} 4 ENV TEST_RACE=1)
run(hosts_later_comms 120 LIB ${nonblocking} ${two} EACH forms_comms finalize,destroy-at-once,nonblocking,nonblocking-groups,nonblocking-split 4)
foreach(how streams current)
  run(hosts_contexts_${how} 120 LIB ${contexts} ${two} --set SLIPRING_FLOP_PER_BYTE=0
    EACH forms_order copy-async,gemm,produce,overwrite-memset,event-gemm-blocking,event-framework,comm-broadcast,group-each,send-recv 4
    ENV TEST_CONTEXTS=${how} TEST_RACE=1)
endforeach()

# Where the driver records no event of the primary context on a stream of a green one.
run(hosts_contexts_foreign 120 LIB ${contexts} ${two} EACH forms_order copy-async,produce,comm-produce 4
  ENV TEST_CONTEXTS=current SOFTGPU_GREEN_EVENTS=0 TEST_RACE=1)

# ---- GEMMs in parts ----
set(in_parts --has "\"event\":\"fused\"" --hasnt "\"event\":\"joined\"")
set(whole --has "\"event\":\"joined\".*\"reason\":\"gemm_over_hosts\"" --hasnt "\"event\":\"fused\"")
set(fused bn at bn-odd at-odd bn-in-place sgemm bn-shared tf32 default-stream other-gemm-between other-stream large)
set(joined bn-beta at-beta an-add bt-add)
set(fused_lt bn at bn-odd bn-c-apart bn-bias bn-relu at-gelu-bias algo-refused large)
set(joined_lt bn-beta an-add)
if(SLIPRING_SANITIZE)
  set(fused bn at-odd bn-in-place)
  set(joined bn-beta)
  set(fused_lt at-bias)
  set(joined_lt)
endif()
foreach(suffix "" _lt)
  foreach(case ${fused${suffix}})
    run(hosts_fuse${suffix}_${case} 60 ${judged} ${in_parts} -- $<TARGET_FILE:fuse${suffix}> 4 ${case})
  endforeach()
  foreach(case ${joined${suffix}})
    run(hosts_fuse${suffix}_${case} 60 ${judged} ${whole} -- $<TARGET_FILE:fuse${suffix}> 4 ${case})
  endforeach()
endforeach()
foreach(row "4 8 bn" "4 8 at-odd" "2 6 bn-in-place" "2 8 large")
  separate_arguments(row)
  list(POP_FRONT row per n case)
  run(hosts_fuse_${case}_${n}_by_${per} 60 ${over} --set TEST_HOSTS=${per} ${spans} ${in_parts} -- $<TARGET_FILE:fuse> ${n} ${case})
endforeach()
run(hosts_fuse_off 60 ${two} --set SLIPRING_FUSE=off --has "\"event\":\"joined\"" --hasnt "\"event\":\"fused\"" -- $<TARGET_FILE:fuse> 4 bn)
run(hosts_fuse_chunks 60 ${judged} ${in_parts} --set SLIPRING_CHUNKS=7 --set SLIPRING_FLOP_PER_BYTE=0 -- $<TARGET_FILE:fuse> 4 large)

# ---- by hosts or by NCCL: tried ----
set(tries --set SLIPRING_TRIALS=2 --set SLIPRING_TRIALS_AFTER=4)
set(tried ${tries} --has "\"event\":\"duel\".*\"sites\":0.*\"rounds\":2" --has "\"event\":\"count\".*\"reason\":\"trial\"")
foreach(phase gemm one+between two+alone)
  string(MAKE_C_IDENTIFIER ${phase} name)
  run(hosts_tried_${name} 60 ${two} ${tried} -- $<TARGET_FILE:call_sites> 4 ${phase}:300)
endforeach()
run(hosts_tried_by_three 60 ${over} --set TEST_HOSTS=3 ${spans} ${tried} -- $<TARGET_FILE:call_sites> 6 between:150 gemm/48:200)
run(hosts_tried_off 60 ${two} --set SLIPRING_TRIALS_AFTER=4 --hasnt "\"event\":\"duel\"|\"reason\":\"trial\"" -- $<TARGET_FILE:call_sites> 4 gemm:300)
# A rank that tries nothing: none does.
run(hosts_tried_one_off 60 ${two} ${tries} --set TEST_RANK_ENV=3:SLIPRING_TRIALS=0 --hasnt "\"event\":\"duel\"|\"reason\":\"trial\"" -- $<TARGET_FILE:call_sites> 4 gemm:300)
# Pieces: 111 KiB in 4 and in 16.
if(NOT SLIPRING_SANITIZE)
  mutant(hosts_pieces)
  run(hosts_tried_pieces 60 LIB $<TARGET_FILE:mutant_hosts_pieces> ${judged} ${tried} --has "\"event\":\"duel_of\".*\"of\":\"pieces\"" --has "\"chunks\":4,"
    --has "\"chunks\":16," --set SLIPRING_TRACE=1 -- $<TARGET_FILE:call_sites> 4 gemm/444:600)
endif()
if(NOT SLIPRING_SANITIZE) # by the clock of the timing model
  # A GEMM beside the gather, that NCCL's kernels keep from the device for all shards, and the rail's for those of one other host.
  set(modelled ${two} --set SOFTGPU_TIMING=1 --set SLIPRING_TRIALS=3 --set SLIPRING_TRIALS_AFTER=4 --set SLIPRING_ALLOC_MIN=1)
  set(undisturbed COST 100 PROCESSORS 3)
  run(hosts_tried_hosts 60 ${modelled} --set SOFTGPU_COLLECTIVE_SHARE=1 --set SOFTGPU_LINK_GBS=0.003 --set SOFTGPU_TFLOPS=0.00005
    --has "\"event\":\"duel\".*\"sites\":0.*\"by\":\"ring\"" --hasnt "\"reason\":\"measured\"" -- $<TARGET_FILE:call_sites> 4 beside:450
    PROPERTIES ${undisturbed})
  set(of_nccl ${modelled} --set SOFTGPU_MEMOP_US=1500 --has "\"event\":\"duel\".*\"sites\":0.*\"by\":\"nccl\"" --has "\"reason\":\"measured\""
    -- $<TARGET_FILE:call_sites> 4 unchecked:450)
  run(hosts_tried_nccl 60 ${of_nccl} PROPERTIES ${undisturbed})
endif()

# ---- random programs of four ranks ----
set(random --set SLIPRING_ALLOC_MIN=1 --set SLIPRING_REDUCE_SCATTER=always)
set(strict_gpu SOFTGPU_TIES=1 SOFTGPU_LAZY=1 SOFTGPU_NCCL_BLIND=1 ASAN_OPTIONS=detect_leaks=0)
set(left_out "--no threads,kill,freeze,stop,deepbind")
function(random name seeds)
  if(SLIPRING_SANITIZE)
    string(REGEX REPLACE "^([0-9]+,[0-9]+),.*" "\\1" seeds ${seeds})
  endif()
  run(hosts_random_${name} 300 ${judged} ${random} ${ARGN} EACH fuzz_plan ${seeds} ${left_out} LABELS hosts race ENV ${strict_gpu} PROPERTIES COST 20)
endfunction()
random(plain 13,25,38)
random(small_slots 66,68,75 --set SLIPRING_SLOT_BYTES=8K)
if(NOT SLIPRING_SANITIZE)
  random(put 91,95,96 --set SLIPRING_PROTOCOL=put)
  random(chunks 98,101,115 --set SLIPRING_CHUNKS=5 --set SLIPRING_FLOP_PER_BYTE=0)
  random(small_budget 133,144 --set SLIPRING_CACHE_BYTES=8K)
endif()

# ---- hosts that differ: all go on with NCCL ----
set(four ${fault_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_HOSTS=on --set TEST_HOSTS=2 --set SLIPRING_GEMM_TIMEOUT=100ms
  --set SLIPRING_AGREE_TIMEOUT=700ms)
set(nccls --hasnt "\"decision\":\"hosts\"|\"event\":\"substitute\"|communicator_failed")
foreach(row "absent LD_PRELOAD=${SLIPRING_PRELOAD_FIRST}" "off SLIPRING_ENABLE=off" "not_asked SLIPRING_HOSTS=off" "differs SLIPRING_CHUNKS=3")
  separate_arguments(row)
  list(POP_FRONT row name set)
  set(why --has "\"event\":\"hosts_off\".*other versions or settings")
  if(NOT name STREQUAL differs)
    set(why --has "\"event\":\"hosts_off\".*not all ranks have come")
  endif()
  run(hosts_${name}_second 60 ${four} ${nccls} ${why} PROCESSES 4 LAUNCH --rank 2 ${set} --rank 3 ${set} PLAY fault_gathers)
  if(NOT name STREQUAL differs) # the first makes the id, which has no other one in it then
    set(why)
  endif()
  run(hosts_${name}_first 60 ${four} ${nccls} ${why} PROCESSES 4 LAUNCH --rank 0 ${set} --rank 1 ${set} PLAY fault_gathers)
  if(NOT name STREQUAL differs) # a host whose ranks differ has no ring
    run(hosts_${name}_one 60 ${four} ${nccls} PROCESSES 4 LAUNCH --rank 3 ${set} PLAY fault_gathers)
  endif()
endforeach()

# What the driver refuses one rank while hosts agree, and connect, it refuses all.
foreach(row "cuMemAllocAsync:1 1" "cuStreamCreateWithPriority:1=2 1" "cuStreamCreateWithPriority:5=2 3" "cuIpcOpenMemHandle:1 1" "cuEventCreate:5=2 2")
  separate_arguments(row)
  list(POP_FRONT row call r)
  string(REGEX REPLACE "=.*" "" short ${call})
  string(REPLACE ":" "_" short ${short})
  run(hosts_refused_${short}_${r} 60 ${four} ${nccls} --has "hosts_off" PROCESSES 4 LAUNCH --rank ${r} SOFTGPU_FAIL=${call} PLAY fault_gathers)
endforeach()

# ---- a rank that goes away while gathers are in flight ----
# Its own host's ranks are told, as those of one host are; those of the other one by NCCL alone, and never wrong: fault_flight.
set(victims 0 3)
if(SLIPRING_SANITIZE)
  set(victims 0)
endif()
foreach(victim IN LISTS victims)
  set(killed --end ${victim} kill)
  foreach(scenario kill-before kill-told kill-between)
    run(hosts_flight_${scenario}_${victim} 60 ${four} ${spans} --has communicator_failed PROCESSES 4 LAUNCH ${killed} PLAY fault_flight ${scenario} ${victim})
  endforeach()
  foreach(scenario abort abort-blocked destroy)
    run(hosts_flight_${scenario}_${victim} 60 ${four} ${spans} --has communicator_failed PROCESSES 4 PLAY fault_flight ${scenario} ${victim})
  endforeach()
  run(hosts_flight_abort-full_${victim} 60 ${four} ${spans} --set SOFTGPU_QUEUE=200 PROCESSES 4 PLAY fault_flight abort-full ${victim})
  set(of_stop_${victim} ${four} ${spans} --hasnt communicator_failed --set SLIPRING_STALL_WARN=200ms
    --has "\"event\":\"stalled\".*\"peer\":-1,.*what rank ${victim} of all hosts" PROCESSES 4 LAUNCH --cont-after 800 PLAY fault_flight stop ${victim})
  run(hosts_flight_stop_${victim} 60 ${of_stop_${victim}})
  run(hosts_flight_stop-fails_${victim} 60 ${four} ${spans} --set SLIPRING_STALL_TIMEOUT=500ms --has communicator_failed PROCESSES 4
    LAUNCH --cont-after 3500 PLAY fault_flight stop-fails ${victim})
  foreach(call cuMemcpyAsync:300 cuStreamBatchMemOp:480)
    string(REGEX REPLACE ":.*" "" short ${call})
    run(hosts_flight_driver-error_${victim}_${short} 60 ${four} ${spans} --set SLIPRING_CHUNKS=8 --set SLIPRING_SLOT_BYTES=16K --has communicator_failed
      PROCESSES 4 LAUNCH --rank ${victim} SOFTGPU_FAIL=${call} PLAY fault_flight driver-error ${victim})
  endforeach()
endforeach()
# Sums: the rail's part comes behind the ring's, and its memory is used by streams that may be held up.
set(sums --set SLIPRING_REDUCE_SCATTER=always --set SLIPRING_ALL_REDUCE=always --has communicator_failed)
set(in_flight scatter:abort scatter:abort-blocked scatter:abort-full scatter:abort-ahead reduce:abort-blocked reduce:abort-full)
if(SLIPRING_SANITIZE)
  set(in_flight scatter:abort-blocked reduce:abort-full)
endif()
foreach(row IN LISTS in_flight)
  string(REPLACE ":" ";" row ${row})
  list(POP_FRONT row how scenario)
  set(queue)
  if(scenario STREQUAL abort-full)
    set(queue --set SOFTGPU_QUEUE=200)
  endif()
  set(of_${how}_${scenario} ${four} ${spans} ${sums} ${queue} PROCESSES 4 PLAY fault_flight ${scenario} 3 4096 ${how})
  run(hosts_flight_${how}_${scenario} 60 ${of_${how}_${scenario}})
endforeach()
foreach(scenario kill-before kill-between)
  run(hosts_flight_scatter_${scenario} 60 ${four} ${spans} ${sums} PROCESSES 4 LAUNCH --end 3 kill PLAY fault_flight ${scenario} 3 4096 scatter)
  run(hosts_flight_reduce_${scenario} 60 ${four} ${spans} ${sums} PROCESSES 4 LAUNCH --end 0 kill PLAY fault_flight ${scenario} 0 4096 reduce-in-place)
endforeach()
set(of_scatter_stop ${four} ${spans} --set SLIPRING_REDUCE_SCATTER=always --hasnt communicator_failed --set SLIPRING_STALL_WARN=200ms
  --has "\"event\":\"stalled\".*\"peer\":-1,.*what rank 3 of all hosts" PROCESSES 4 LAUNCH --cont-after 800 PLAY fault_flight stop 3 4096 scatter)
run(hosts_flight_scatter_stop 60 ${of_scatter_stop})
# While they are tried: a rank that dies when it tells of its times, or stops; and one that has none.
set(asked ${four} ${spans} --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=1)
run(hosts_asked_kill 60 ${asked} PROCESSES 4 LAUNCH --end 3 kill --rank 3 SOFTGPU_FAIL=cuEventElapsedTime:1=kill PLAY fault_flight kill-asked 3)
# One that has yet to tell when all of its gathers are over, and destroys the communicator: the others' devices wait for it.
set(asked_slow ${two} --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=1 --set TEST_RANK_ENV=3:SOFTGPU_FAIL=cuEventElapsedTime:1=sleep700
  -- $<TARGET_FILE:call_sites> 4 alone:112)
run(hosts_asked_slow 60 ${asked_slow})
# And one that waits for what the others have measured, as they do not call, and is aborted.
set(asked_abort ${asked} --set SOFTGPU_QUEUE=0 --set SOFTGPU_QUEUE_LAUNCHES=0 --set SOFTGPU_NCCL_CONNECT=0 --hasnt "could not be exchanged"
  PROCESSES 4 PLAY fault_flight abort-full 1 1000)
run(hosts_asked_abort 60 ${asked_abort})
set(asked_none ${asked} --has "\"event\":\"duel\".*\"sites\":0.*\"rounds\":0.*\"by\":\"none\"" PROCESSES 4 LAUNCH --rank 2
  SOFTGPU_FAIL=cuEventElapsedTime:1+ PLAY fault_gathers --rounds 300)
run(hosts_asked_none 60 ${asked_none})
# The rail's events can not be made.
run(hosts_refused_cuEventCreate_8_2 60 ${four} ${nccls} --has "hosts_off" PROCESSES 4 LAUNCH --rank 2 SOFTGPU_FAIL=cuEventCreate:8=2 PLAY fault_gathers)

# ---- mutants ----
set(caught ${two} --set TEST_RACE=strict --set SLIPRING_FLOP_PER_BYTE=0)
run(hosts_mutant_overtaken 120 MUTANT hosts_overtaken ${caught} EACH forms_order overtake-gemm-send 4)
run(hosts_mutant_no_arrival 120 MUTANT hosts_no_arrival ${caught} EACH forms_order copy-async,gemm 4)
run(hosts_mutant_verified 120 WITH hosts_no_arrival ${caught_sh} --tries 8 "verify_differs" ${two} --set SLIPRING_VERIFY=1 --hasnt verify_differs
  -- $<TARGET_FILE:forms_order> copy-async 4)
run(hosts_mutant_no_piece 120 MUTANT hosts_no_piece ${caught} --set SLIPRING_CHUNKS=5 EACH forms_order copy-async 4)
run(hosts_mutant_rail_early 120 MUTANT hosts_rail_early ${caught} EACH forms_order produce 4)
run(hosts_mutant_group_rail 120 MUTANT hosts_group_rail ${caught} EACH forms_groups made-late 4)
run(hosts_mutant_nccl_not_awaited 120 MUTANT hosts_nccl_not_awaited ${caught} ${no_room} EACH forms_groups made-late "4 2000000")
run(hosts_mutant_part_early 120 MUTANT hosts_part_early ${caught} EACH forms_order gemm 4)
if(NOT SLIPRING_SANITIZE)
  mutant(hosts_rail_foreign)
  run(hosts_mutant_rail_foreign 120 LIB $<TARGET_FILE:contexts>:$<TARGET_FILE:mutant_hosts_rail_foreign> ${caught_sh} "race|^wrong" ${caught}
    -- $<TARGET_FILE:forms_order> produce 4 ENV TEST_CONTEXTS=current SOFTGPU_GREEN_EVENTS=0)
endif()
run(hosts_mutant_reads_output 120 WITH hosts_reads_output ${caught_sh} "no log line matches: .*gemm_over_hosts" ${caught} ${whole}
  -- $<TARGET_FILE:fuse> 4 bn-beta)
run(hosts_mutant_captured 120 WITH hosts_captured ${caught_sh} "CAPTURE_ISOLATION" ${caught} -- $<TARGET_FILE:fuzz_plan> 13
  --no threads,kill,freeze,stop,deepbind ENV ${strict_gpu} RANKS_SECONDS=6)
foreach(name alone split)
  set(mutant_of_alone hosts_alone)
  set(mutant_of_split hosts_ranks)
  run(hosts_mutant_${name} 120 WITH ${mutant_of_${name}} ${caught_sh} "log line|exit status" ${of_${name}} ENV RANKS_SECONDS=5)
endforeach()
run(hosts_mutant_settings 120 WITH hosts_settings ${caught_sh} "log line|no error was expected" ${four} ${nccls} PROCESSES 4 LAUNCH --rank 2 SLIPRING_CHUNKS=3
  --rank 3 SLIPRING_CHUNKS=3 PLAY fault_gathers)
run(hosts_mutant_no_vote 120 WITH hosts_no_vote ${caught_sh} "log line|exit status" ${four} ${nccls} PROCESSES 4 LAUNCH --seconds 6 --rank 1
  SOFTGPU_FAIL=cuIpcOpenMemHandle:1 PLAY fault_gathers)
run(hosts_mutant_untold 120 WITH hosts_untold ${caught_sh} "neither done nor in error" ${four} PROCESSES 4 LAUNCH --end 1 kill
  PLAY fault_flight kill-before 1)
run(hosts_mutant_not_cut_off 120 WITH hosts_not_cut_off ${caught_sh} --tries 20 "shard is wrong" ${four} PROCESSES 4 LAUNCH --end 0 kill
  PLAY fault_flight kill-between 0)
run(hosts_mutant_sum_unsaid 120 MUTANT hosts_sum_unsaid ${judged} ${random} EACH fuzz_plan 38 ${left_out} ENV ${strict_gpu})
run(hosts_mutant_sum_freed 120 WITH hosts_sum_freed ${caught_sh} --tries 8 "misuse" ${of_scatter_abort-blocked})
run(hosts_mutant_sum_complete 120 WITH hosts_sum_complete ${caught_sh} "no log line matches" ${of_scatter_stop})
run(hosts_mutant_sum_cut_off 120 WITH hosts_sum_cut_off ${caught_sh} --tries 8 "no error, result" ${of_scatter_abort})
run(hosts_mutant_besides 120 MUTANT hosts_besides ${caught} EACH forms_order group-first-into-second 4)
run(hosts_mutant_before 120 MUTANT hosts_before ${caught} EACH forms_order group-second-by-first 4)
run(hosts_mutant_order 120 MUTANT hosts_order ${caught} EACH forms_order comm-broadcast 4)
run(hosts_mutant_group_order 120 MUTANT hosts_group_order ${caught} EACH forms_order group-partner-nccl 4)
run(hosts_mutant_own_times 120 WITH hosts_own_times ${caught_sh} "no log line matches" ${asked_none})
run(hosts_mutant_none_absent 120 WITH hosts_none_absent ${caught_sh} "no log line matches" ${of_split-some} ENV SLIPRING_AGREE_TIMEOUT=500ms)
run(hosts_mutant_late_apart 120 MUTANT hosts_late_apart ${over} --set TEST_HOSTS=3 EACH forms_groups in-progress 6)
run(hosts_mutant_known_early 120 WITH hosts_known_early ${caught_sh} "a log line matches" ${asked_abort})
run(hosts_mutant_late_peer 120 WITH hosts_late_peer ${caught_sh} "no log line matches" ${of_stop_0})
run(hosts_mutant_left_early 120 WITH hosts_left_early ${caught_sh} "not finished in time|exit status" ${asked_slow} ENV RANKS_SECONDS=5)
