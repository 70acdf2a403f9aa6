# SPDX-License-Identifier: Apache-2.0
# The table of fault tests.
#
#   slr_fault(NAME RANKS N PLAY program arguments... [RUN fault.sh options...] [LAUNCH launch options...] [STAGE])
#
# RUN options say what the log must hold (JSON lines); launch judges how each rank ends, the programs judge results and times. STAGE preloads stage.c.
function(slr_fault name)
  cmake_parse_arguments(F STAGE "RANKS" "PLAY;RUN;LAUNCH" ${ARGN})
  list(POP_FRONT F_PLAY program)
  set(lib $<TARGET_FILE:slipring>)
  if(F_STAGE)
    set(lib $<TARGET_FILE:fault_stage>:${lib})
  endif()
  add_test(NAME fault_${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/fault.sh --set SLIPRING_MIN_BYTES=0 --set SLIPRING_GEMM_TIMEOUT=100ms ${F_RUN} --
    $<TARGET_FILE:fault_launch> ${F_LAUNCH} ${F_RANKS} -- $<TARGET_FILE:fault_${program}> ${F_PLAY})
  set_tests_properties(fault_${name} PROPERTIES TIMEOUT 60 LABELS fault ENVIRONMENT
    "SOFTGPU_DIR=${SOFTGPU_DIR};SLIPRING_LIB=${lib};TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST}")
endfunction()

# said(OUT EVENT CRANKS FIELDS): --has options: each of the ranks has a line of that event with those fields after "crank".
function(said out event cranks fields)
  set(options ${${out}})
  foreach(r ${cranks})
    list(APPEND options --has "\"event\":\"${event}\".*\"crank\":${r},.*${fields}")
  endforeach()
  set(${out} ${options} PARENT_SCOPE)
endfunction()
# All pass for `reason`, which is about `peer`; nothing is substituted.
function(all_pass out cranks reason peer)
  set(${out} --hasnt "\"event\":\"substitute\"")
  said(${out} communicator "${cranks}" "\"decision\":\"pass\",\"reason\":\"${reason}\",\"peer\":${peer}[,}]")
  set(${out} ${${out}} PARENT_SCOPE)
endfunction()
function(others out n but)
  math(EXPR last "${n} - 1")
  set(list)
  foreach(r RANGE ${last})
    if(NOT r EQUAL but)
      list(APPEND list ${r})
    endif()
  endforeach()
  set(${out} ${list} PARENT_SCOPE)
endfunction()

# 1. Ranks that differ from the start.
foreach(n 2 3 4)
  math(EXPR last "${n} - 1")
  foreach(r RANGE ${last})
    others(rest ${n} ${r})
    all_pass(said "${rest}" rank_absent ${r})
    slr_fault(absent_${r}_of_${n} RANKS ${n} PLAY gathers LAUNCH --rank ${r} LD_PRELOAD=${SLIPRING_PRELOAD_FIRST} RUN ${said})
  endforeach()
endforeach()
foreach(r 0 2)
  others(rest 3 ${r})
  all_pass(said "${rest}" rank_absent ${r})
  slr_fault(off_${r} RANKS 3 PLAY gathers LAUNCH --rank ${r} SLIPRING_ENABLE=off RUN ${said})
endforeach()

# Uniform settings: name, value on one rank, as the log shows it, value of the others as the log shows it.
function(differs setting value logged other)
  foreach(r 0 1)
    if(r EQUAL 0) # rank 0 is what the others are compared with
      set(values "\"peer\":1,\"setting\":\"SLIPRING_${setting}\",\"peer_value\":${other},\"rank0_value\":${logged}[,}]")
    else()
      set(values "\"peer\":1,\"setting\":\"SLIPRING_${setting}\",\"peer_value\":${logged},\"rank0_value\":${other}[,}]")
    endif()
    all_pass(said "0;1;2" settings_differ 1)
    said(said settings_differ "0;1;2" "${values}")
    slr_fault(differs_${setting}_${r} RANKS 3 PLAY gathers LAUNCH --rank ${r} SLIPRING_${setting}=${value} RUN ${said})
  endforeach()
endfunction()
differs(MIN_BYTES 8K 8192 0)
differs(CHUNKS 3 3 0)
differs(VERIFY 7 7 0)
differs(PROTOCOL pull 1 0)
differs(FLOP_PER_BYTE 30000 30000 6000)
foreach(local SLOT_BYTES=8K LOG=debug FUSE=off STRICT=on CACHE_BYTES=64K AGREE_TIMEOUT=9s STALL_WARN=0 STALL_TIMEOUT=9s)
  string(REGEX REPLACE "=.*" "" short ${local})
  set(said)
  said(said substitute "0;1;2" "\"reason\":\"ring\"")
  slr_fault(local_${short} RANKS 3 PLAY gathers LAUNCH --rank 1 SLIPRING_${local} RUN ${said})
endforeach()

foreach(r 0 1 2)
  others(rest 3 ${r})
  set(lib $<TARGET_FILE:fault_other_version>)
  if(SLIPRING_PRELOAD_FIRST)
    set(lib ${SLIPRING_PRELOAD_FIRST}:${lib})
  endif()
  set(said --hasnt "\"event\":\"substitute\"" --has "\"event\":\"version_differs\".*${OTHER_VERSION}")
  said(said communicator "0;1;2" "\"decision\":\"pass\",\"reason\":\"version_differs\",\"peer\":[012][,}]")
  slr_fault(version_${r} RANKS 3 PLAY gathers LAUNCH --rank ${r} LD_PRELOAD=${lib} RUN ${said})
endforeach()

# 2. Killed during the agreement. The others go on with NCCL and get its error.
#    slr_killed(NAME VICTIM ROOT AT REASON-OF-THE-OTHERS): AT is stage.c's FAULT_AT without the action; `root` is the rank that collects.
function(slr_killed name victim root at reason)
  others(rest 3 ${victim})
  all_pass(said "${rest}" ${reason} ${victim})
  slr_fault(killed_${name} STAGE RANKS 3 PLAY gathers --must-fail LAUNCH --end ${victim} kill --rank ${victim} FAULT_AT=${at}:kill
    RUN --set FAULT_ROOT=${root} ${said} ${ARGN})
endfunction()
# The rank that collects dies before it has said a word to anybody: nobody can know more than its process.
function(slr_killed_unnamed name victim root at)
  others(rest 3 ${victim})
  set(said --hasnt "\"event\":\"substitute\"" --has "\"event\":\"no_meeting\",\"root_pid\":[1-9]")
  said(said communicator "${rest}" "\"decision\":\"pass\",\"reason\":\"peer_died\"")
  slr_fault(killed_${name} STAGE RANKS 3 PLAY gathers --must-fail LAUNCH --end ${victim} kill --rank ${victim} FAULT_AT=${at}:kill
    RUN --set FAULT_ROOT=${root} ${said})
endfunction()
slr_killed(member_before_hello 1 0 before:send:2 peer_died) # the first is the token
slr_killed(member_after_hello 1 0 after:send:2 peer_died)
slr_killed(member_before_answer 2 0 before:recvmsg:1 peer_died)
slr_killed(member_after_answer 1 2 after:recvmsg:1 peer_died)
slr_killed_unnamed(root_before_fallback 2 2 before:sendmsg:1)
slr_killed(root_before_hello 1 1 before:recv:3 peer_died) # two tokens come first
slr_killed(root_after_hello 2 2 after:recv:4 peer_died)
slr_killed(root_before_block 0 0 before:memfd_create:1 peer_died)
slr_killed(root_before_answer 1 1 before:sendmsg:3 peer_died)
slr_killed(root_after_one_answer 2 2 after:sendmsg:3 peer_died)
slr_killed(root_after_answers 0 0 after:sendmsg:4 peer_died)

# Before NCCL's own meeting is complete: NCCL fails where it notices (the maker of the unique id died), and else waits, as it does without slipring;
# then the job starter ends the rest.
foreach(at before:bind:1 after:listen:1)
  string(REGEX REPLACE "[:1]" "_" short ${at})
  slr_fault(killed_${short}of_0 STAGE RANKS 3 PLAY gathers --must-fail LAUNCH --end 0 kill --rank 0 FAULT_AT=${at}:kill
    RUN --set FAULT_ROOT=0 --hasnt substitute)
endforeach()
# While the rank that collects accepts the others, which is during NCCL's own meeting: before it is complete or after.
foreach(at before:accept4:1 after:recv:1)
  string(REGEX REPLACE "[:1]" "_" short ${at})
  slr_fault(killed_${short}of_0 STAGE RANKS 3 PLAY gathers --must-fail LAUNCH --end 0 kill --rank 0 FAULT_AT=${at}:kill
    RUN --set FAULT_ROOT=0 --hasnt "\"event\":\"substitute\"")
endforeach()
foreach(at before:bind:1 before:connect:1 after:connect:1 after:send:1)
  string(REGEX REPLACE "[:1]" "_" short ${at})
  slr_fault(killed_${short}of_2 STAGE RANKS 3 PLAY gathers --must-fail RUN --set FAULT_ROOT=0 --hasnt substitute
    LAUNCH --term-after 300 --end 0 term --end 1 term --end 2 kill --rank 2 FAULT_AT=${at}:kill)
endforeach()

# 3. On the device side of the agreement, by the driver's own fault injection. The victim has posted when it imports; for the last, the others are
#    slow, so that it is ready when it dies.
foreach(r 0 1 2)
  others(rest 3 ${r})
  all_pass(said "${rest}" peer_died ${r})
  foreach(call cuMemHostRegister:1 cuStreamBatchMemOp:1 cuMemAlloc:3 cuIpcGetMemHandle:1 cuIpcOpenMemHandle:1 cuIpcOpenMemHandle:2)
    string(REPLACE ":" "_" short ${call})
    if(r EQUAL 1 OR call STREQUAL "cuIpcOpenMemHandle:1")
      slr_fault(killed_${short}_${r} RANKS 3 PLAY gathers --must-fail RUN ${said}
        LAUNCH --end ${r} kill --rank ${r} SOFTGPU_FAIL=${call}=kill)
    endif()
  endforeach()
  list(GET rest 0 a)
  list(GET rest 1 b)
  slr_fault(killed_ready_${r} RANKS 3 PLAY gathers --must-fail RUN ${said}
    LAUNCH --end ${r} kill --rank ${r} SOFTGPU_FAIL=cuIpcOpenMemHandle:2=kill100
           --rank ${a} SOFTGPU_FAIL=cuIpcOpenMemHandle:1=sleep300 --rank ${b} SOFTGPU_FAIL=cuIpcOpenMemHandle:1=sleep300)
endforeach()

# Silent ranks: the others give up, the silent one learns of it when it is back, all are exact through NCCL.
function(slr_silent name victim root)
  all_pass(said "0;1;2" agreement_timeout ${victim})
  slr_fault(silent_${name} STAGE RANKS 3 PLAY gathers LAUNCH --cont-after 700 ${ARGN}
    RUN --set FAULT_ROOT=${root} --set SLIPRING_AGREE_TIMEOUT=300ms ${said})
endfunction()
slr_silent(before_hello 1 0 --rank 1 FAULT_AT=before:send:2:stop)
slr_silent(before_posting 1 0 --rank 1 FAULT_AT=after:recvmsg:1:stop)
slr_silent(posted 2 0 --rank 2 SOFTGPU_FAIL=cuIpcOpenMemHandle:1=stop)

# 4. In flight.
function(slr_flight scenario victim)
  cmake_parse_arguments(F "" "NAME;RANKS" "SHARD;RUN;LAUNCH;SAID" ${ARGN})
  if(NOT F_RANKS)
    set(F_RANKS 3)
  endif()
  slr_fault(flight_${scenario}_${victim}${F_NAME} RANKS ${F_RANKS} PLAY flight ${scenario} ${victim} ${F_SHARD}
    RUN ${F_RUN} ${F_SAID} LAUNCH ${F_LAUNCH})
endfunction()
set(many_pieces --set SLIPRING_CHUNKS=8 --set SLIPRING_SLOT_BYTES=16K)
set(slow --set SLIPRING_SLOT_BYTES=64K --set SOFTGPU_TIMING=1 --set SOFTGPU_LINK_GBS=0.02) # some 100 ms for the second gather

foreach(victim 0 1 2)
  others(rest 3 ${victim})
  set(said)
  # The first to notice names the victim; the others may notice that one first.
  said(said communicator_failed "${rest}" "\"peer\":[012],\"call\":[12],\"piece\":[0-9]+,\"status\":\"peer_failed\"")
  list(APPEND said --has "\"event\":\"communicator_failed\".*\"peer\":${victim},")
  set(killed --end ${victim} kill)
  slr_flight(kill-before ${victim} LAUNCH ${killed} SAID ${said} RUN ${many_pieces})
  if(victim EQUAL 1)
    slr_flight(kill-told ${victim} LAUNCH ${killed} SAID ${said} RUN ${many_pieces})
  endif()
  slr_flight(kill-between ${victim} LAUNCH ${killed} SAID ${said} RUN ${many_pieces})
  slr_flight(kill-driver ${victim} NAME _enqueueing SAID ${said} RUN ${many_pieces}
    LAUNCH ${killed} --rank ${victim} SOFTGPU_FAIL=cuStreamBatchMemOp:370=kill)
  slr_flight(kill-driver ${victim} NAME _copying SAID ${said} RUN ${slow}
    LAUNCH ${killed} --rank ${victim} SOFTGPU_FAIL=cuStreamBatchMemOp:100=kill20)
  slr_flight(abort ${victim} RUN ${many_pieces} --has "communicator_failed.*\"crank\":${victim},.*ncclCommAbort" SAID ${said})
  slr_flight(abort-blocked ${victim} SAID ${said} --has "communicator_held_up.*\"crank\":${victim},")
  slr_flight(abort-full ${victim} RUN --set SOFTGPU_QUEUE=200 SAID --has "communicator_failed.*\"crank\":${victim},.*ncclCommAbort")
  slr_flight(destroy ${victim} SAID ${said})
  set(stalled)
  said(stalled stalled "${rest}" "\"peer\":${victim},")
  slr_flight(stop ${victim} LAUNCH --cont-after 800 RUN --set SLIPRING_STALL_WARN=200ms SAID ${stalled} --hasnt communicator_failed)
  set(stalled)
  said(stalled communicator_failed "${rest}" "\"peer\":[012],\"call\":2.*")
  list(APPEND stalled --has "\"event\":\"communicator_failed\".*\"peer\":${victim},.*\"status\":\"timeout\"")
  foreach(pieces one many)
    set(cut)
    if(pieces STREQUAL many)
      set(cut ${many_pieces})
    endif()
    slr_flight(stop-fails ${victim} NAME _${pieces} LAUNCH --cont-after 3500 SAID ${stalled}
      RUN --set SLIPRING_STALL_TIMEOUT=500ms ${cut})
  endforeach()
  set(late LAUNCH)
  foreach(r ${rest})
    list(APPEND late --rank ${r} SOFTGPU_LINK_GBS=0.002)
  endforeach()
  # The slow ones have to be those that read.
  slr_flight(leave ${victim} ${late} RUN --set SOFTGPU_TIMING=1 --set SLIPRING_PROTOCOL=pull --hasnt communicator_failed)
  slr_flight(die-early ${victim} ${late} RUN --set SOFTGPU_TIMING=1 --set SLIPRING_PROTOCOL=pull)
endforeach()

slr_fault(thawed RANKS 3 PLAY thawed LAUNCH --cont-after 6000 RUN --set SLIPRING_STALL_TIMEOUT=5s --hasnt communicator_failed)

# The same of reduce-scatters behind the GEMMs that make what they send. With NCCL nobody tells of a dead rank: what does without.
function(slr_flight_scatter scenario victim)
  cmake_parse_arguments(F "" "NAME" "RUN;LAUNCH;SAID" ${ARGN})
  slr_flight(${scenario} ${victim} NAME _scatter${F_NAME} SHARD 256000 scatter LAUNCH ${F_LAUNCH} SAID ${F_SAID}
    RUN --set SLIPRING_REDUCE_SCATTER=always ${F_RUN})
endfunction()
foreach(victim 0 1 2)
  others(rest 3 ${victim})
  set(killed --end ${victim} kill)
  slr_flight_scatter(stop ${victim} LAUNCH --cont-after 800)
  slr_flight_scatter(leave-made ${victim})
  slr_flight_scatter(abort-made ${victim})
  if(NOT SLIPRING_TEST_SCATTERS)
    continue()
  endif()
  set(said --has "\"event\":\"produced\"")
  said(said communicator_failed "${rest}" "\"peer\":[012],.*\"status\":\"peer_failed\"")
  foreach(scenario kill-before kill-between kill-made kill-unmade kill-told)
    slr_flight_scatter(${scenario} ${victim} LAUNCH ${killed} SAID ${said})
  endforeach()
  # On the way into the call, and while parts travel and are added: some 500 ms, over a slow link.
  foreach(after 1 120 240 360)
    slr_flight_scatter(kill-before ${victim} NAME _slow_${after} SAID ${said}
      RUN --set SOFTGPU_TIMING=1 --set SOFTGPU_LINK_GBS=0.001 LAUNCH ${killed} --rank ${victim} FLIGHT_KILL_AFTER=${after})
  endforeach()
  slr_flight_scatter(abort ${victim} RUN --has "communicator_failed.*\"crank\":${victim},.*ncclCommAbort" SAID ${said})
  slr_flight_scatter(abort-blocked ${victim} SAID ${said})
  slr_flight_scatter(abort-ahead ${victim} RUN --has "communicator_failed.*\"crank\":${victim},.*ncclCommAbort" SAID ${said})
  slr_flight_scatter(abort-full ${victim} RUN --set SOFTGPU_QUEUE=200 SAID --has "communicator_failed.*\"crank\":${victim},.*ncclCommAbort")
  slr_flight_scatter(destroy ${victim} SAID ${said})
  set(stalled)
  said(stalled communicator_failed "${rest}" "\"peer\":[012],")
  list(APPEND stalled --has "\"event\":\"communicator_failed\".*\"peer\":${victim},.*\"status\":\"timeout\"")
  slr_flight_scatter(stop-fails ${victim} LAUNCH --cont-after 3500 SAID ${stalled} RUN --set SLIPRING_STALL_TIMEOUT=500ms)
endforeach()

# 5. The driver refuses: while the communicator connects (calls by slipring: the program has made two allocations and a stream by then) ...
#    slr_refused(CALL REASON): SOFTGPU_FAIL on each rank in turn; everybody passes and everything is exact. The rank says which call failed, and how.
function(slr_refused call reason)
  string(REGEX REPLACE "=.*" "" short ${call})
  string(REGEX REPLACE "[:+]" "_" short ${short})
  string(REGEX REPLACE ":.*" "" function ${call})
  foreach(r 0 1 2)
    all_pass(said "0;1;2" ${reason} ${r})
    if(reason STREQUAL driver_call_failed)
      list(APPEND said --has "\"rank\":${r},.*\"event\":\"cuda_error\",\"call\":\"${function}\",\"error\":\"CUDA_ERROR_OUT_OF_MEMORY\"")
    endif()
    slr_fault(refused_${short}_${r} RANKS 3 PLAY gathers LAUNCH --rank ${r} SOFTGPU_FAIL=${call} RUN ${said})
  endforeach()
endfunction()
slr_refused(cuMemAlloc:3+ no_staging)
slr_refused(cuIpcGetMemHandle:1 no_ipc)
slr_refused(cuIpcOpenMemHandle:1 no_ipc)
slr_refused(cuIpcOpenMemHandle:2 no_ipc)
slr_refused(cuMemHostRegister:1 no_control_block)
slr_refused(cuMemHostGetDevicePointer:1 no_control_block)
slr_refused(cuStreamBatchMemOp:1 no_stream_memops)
slr_refused(cuStreamWaitValue32:1 no_stream_memops)
foreach(n 1 2 3 4)
  slr_refused(cuStreamCreateWithPriority:${n}=2 driver_call_failed)
endforeach()
foreach(n 1 2 3 4 5)
  slr_refused(cuEventCreate:${n}=2 driver_call_failed)
endforeach()
slr_refused(cuDevicePrimaryCtxRetain:2=2 driver_call_failed)
set(said --has "staging_shrunk")
said(said substitute "0;1;2" "\"reason\":\"ring\"")
slr_fault(staging_retried RANKS 3 PLAY gathers LAUNCH --rank 1 SOFTGPU_FAIL=cuMemAlloc:3 RUN ${said})

# ... and in a gather. Every rank gets an error.
foreach(call cuMemcpyAsync cuStreamBatchMemOp cuEventRecord)
  set(n_cuMemcpyAsync 250)
  set(n_cuStreamBatchMemOp 370)
  set(n_cuEventRecord 200)
  foreach(r 0 1)
    set(said --has "\"event\":\"cuda_error\",\"call\":\"${call}\"")
    said(said communicator_failed "0;1;2" "\"call\":[12],\"piece\":[0-9]+")
    slr_flight(driver-error ${r} NAME _${call} LAUNCH --rank ${r} SOFTGPU_FAIL=${call}:${n_${call}} RUN ${many_pieces} SAID ${said})
  endforeach()
endforeach()

# Ranks of one process.
set(said)
said(said communicator_failed "0;1" "\"peer\":[012]")
slr_fault(process_abort RANKS 1 PLAY one_process abort 3 RUN ${said} --has "\"event\":\"substitute\"")
all_pass(said "0;1;2" no_shared_virtual_memory "[012]")
slr_fault(process_no_shared_memory RANKS 1 PLAY one_process exact 3 LAUNCH --rank 0 SOFTGPU_FAIL=cuMemSetAccess:5 RUN ${said})
foreach(call cuEventCreate:5 cuStreamCreateWithPriority:4)
  string(REPLACE ":" "_" short ${call})
  all_pass(said "0;1;2" driver_call_failed "[012]")
  slr_fault(process_refused_${short} RANKS 1 PLAY one_process exact 3 LAUNCH --rank 0 SOFTGPU_FAIL=${call} RUN ${said})
endforeach()

# Budgets.
all_pass(said "0;1;2" no_staging 1)
slr_fault(budget_none RANKS 3 PLAY gathers LAUNCH --rank 1 SLIPRING_CACHE_BYTES=0 RUN ${said})
set(said --hasnt "\"decision\":\"pass\"")
said(said connected "0;1;2" "\"slot_bytes\":4096,")
slr_fault(budget_smallest RANKS 3 PLAY gathers LAUNCH --rank 1 SLIPRING_CACHE_BYTES=8K RUN ${said})
# Three fit, with ever smaller slots. Twice over, the same again: their budget has come back. With more, the others stay with NCCL.
set(said)
said(said substitute "0;1" "\"reason\":\"ring\"")
said(said connected "0;1" "\"slot_bytes\":65536,")
said(said connected "0;1" "\"slot_bytes\":32768,")
said(said connected "0;1" "\"slot_bytes\":4096,")
slr_fault(budget_shared RANKS 2 PLAY gathers --comms 3 --rounds 2 RUN --set SLIPRING_SLOT_BYTES=64K --set SLIPRING_CACHE_BYTES=200K ${said}
  --hasnt "\"slot_bytes\":(16384|8192),|\"decision\":\"pass\"")
set(said)
said(said connected "0;1" "\"slot_bytes\":16384,")
said(said communicator "0;1" "\"decision\":\"pass\",\"reason\":\"no_staging\"")
slr_fault(budget_exhausted RANKS 2 PLAY gathers --comms 8 --rounds 1 RUN --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_CACHE_BYTES=48K ${said})

# 6. Bad input.
slr_fault(bad_input RANKS 3 PLAY bad_input RUN --has "\"event\":\"substitute\"" --has bad_argument --has count_zero
  --hasnt communicator_failed)
slr_fault(bad_input_overflow RANKS 2 PLAY bad_input overflow RUN --misuse-ok --has bad_argument)
slr_fault(crowded RANKS 3 PLAY bad_input crowded RUN --set SOFTGPU_DEVICES=2)
slr_fault(settings RANKS 2 PLAY gathers RUN --set SLIPRING_CHUNKS=banana --set SLIPRING_MINBYTES=5 --set SLIPRING_SLOT_BYTES=12Q
  --has "\"event\":\"substitute\"" --has "\"level\":\"warn\".*SLIPRING_CHUNKS.*banana" --has "\"level\":\"warn\".*SLIPRING_MINBYTES.*SLIPRING_MIN_BYTES"
  --has "\"level\":\"warn\".*SLIPRING_SLOT_BYTES.*12Q")

# 7. kill -9 of everything, at random times.
add_test(NAME fault_kill_all COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/kill_all.sh 20 $<TARGET_FILE:fault_launch> $<TARGET_FILE:fault_gathers>)
set_tests_properties(fault_kill_all PROPERTIES TIMEOUT 120 LABELS fault ENVIRONMENT
  "SOFTGPU_DIR=${SOFTGPU_DIR};SLIPRING_LIB=$<TARGET_FILE:slipring>;TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST}")
# 8. Gone while the others hang in a GEMM (hung.c), or while NCCL has the gather in the trials.
function(slr_hung scenario victim)
  cmake_parse_arguments(F "" "NAME;RANKS" "RUN;LAUNCH;PLAY" ${ARGN})
  if(NOT F_RANKS)
    set(F_RANKS 3)
  endif()
  slr_fault(hung_${scenario}_${victim}${F_NAME} RANKS ${F_RANKS} PLAY hung ${scenario} ${victim} ${F_PLAY}
    RUN --set SLIPRING_GEMM_TIMEOUT=100ms ${F_RUN} LAUNCH ${F_LAUNCH})
endfunction()
set(told --has "\"event\":\"gemm_told\"" --has "\"event\":\"communicator_failed\"")
set(untold --hasnt "\"event\":\"gemm_told\"")
set(slow --set SLIPRING_FUSE=off --set SOFTGPU_FAIL=cuLaunchKernel:1+=sleep400) # each GEMM, for four times as long as one may hang
set(well --hasnt "\"event\":\"(gemm_told|communicator_failed)\"")
set(trials --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=2 --has "\"reason\":\"trial\"")
foreach(victim 0 1)
  set(killed --end ${victim} kill)
  slr_hung(gemm-killed ${victim} LAUNCH ${killed} RUN ${told})
  slr_hung(gemm-killed ${victim} NAME _trials RANKS 2 LAUNCH ${killed} RUN --set SLIPRING_TRIALS=1 ${told})
  slr_hung(gemm-killed ${victim} NAME _whole RANKS 2 LAUNCH ${killed} RUN --set SLIPRING_FUSE=off ${told})
  slr_hung(gemm-aborted ${victim} RUN ${told})
  slr_hung(gemm-aborted ${victim} NAME _late RUN --set SLIPRING_GEMM_TIMEOUT=900ms ${told}) # peers have raised their words by then
  slr_hung(gemm-aborted ${victim} NAME _threads RANKS 1 PLAY threads RUN ${told})
  slr_hung(turn-aborted ${victim} NAME _threads RANKS 1 PLAY threads RUN ${trials} --has "communicator_failed.*ncclCommAbort")
  slr_hung(gemm-stopped ${victim} LAUNCH --cont-after 4000 RUN --set SLIPRING_STALL_TIMEOUT=500ms ${told})
  slr_hung(gemm-two ${victim} LAUNCH ${killed} RUN ${told})
  slr_hung(gemm-ends ${victim} RUN ${well})
  slr_hung(gemm-spared ${victim} RUN ${slow} --has "\"event\":\"communicator_failed\"" ${untold})
  slr_hung(gemm-after ${victim} LAUNCH ${killed} RUN ${slow} ${told})
  slr_hung(gemm-behind ${victim} LAUNCH ${killed} RUN --has "\"event\":\"communicator_failed\"" ${untold})
  foreach(ms 20 100 130 160 190 220)
    slr_hung(gemm-edge ${victim} NAME _${ms} RANKS 2 LAUNCH ${killed}
      RUN --set CUDA_MODULE_LOADING=EAGER --set SOFTGPU_FAIL=cuLaunchKernel:1=sleep${ms} --has "\"event\":\"communicator_failed\"")
  endforeach()
  slr_hung(gemm-edge ${victim} NAME _default RANKS 2 LAUNCH ${killed}
    RUN --set SLIPRING_GEMM_TIMEOUT=10s --set CUDA_MODULE_LOADING=EAGER --set SOFTGPU_FAIL=cuLaunchKernel:1=sleep900
    --has "\"event\":\"communicator_failed\"" ${untold})
  slr_hung(turn-killed ${victim} LAUNCH ${killed} RUN ${trials} --has "communicator_failed.*NCCL's in the trials")
  slr_hung(turn-killed ${victim} NAME _grouped PLAY grouped LAUNCH ${killed} RUN ${trials} --has "communicator_failed.*NCCL's in the trials")
  slr_hung(turn-aborted ${victim} RUN ${trials} --has "communicator_failed.*ncclCommAbort")
  others(rest 3 ${victim})
  set(late LAUNCH)
  foreach(r ${rest}) # their words come late, those of NCCL's calls as well
    list(APPEND late --rank ${r} SOFTGPU_FAIL=cuStreamWriteValue32:1+=sleep200)
  endforeach()
  slr_hung(turn-ends ${victim} RUN ${trials} ${well} ${late})
  slr_hung(turn-ends ${victim} NAME _grouped PLAY grouped RUN ${trials} ${well} ${late})
endforeach()

# 9. Gone while the others hang inside of a call of NCCL (called.c).
function(slr_called scenario victim)
  cmake_parse_arguments(F "" "NAME;RANKS" "RUN;LAUNCH;PLAY" ${ARGN})
  if(NOT F_RANKS)
    set(F_RANKS 3)
  endif()
  slr_fault(called_${scenario}_${victim}${F_NAME} RANKS ${F_RANKS} PLAY called ${scenario} ${victim} ${F_PLAY}
    RUN --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=0 --set SOFTGPU_NCCL_CONNECT=1 ${F_RUN} LAUNCH ${F_LAUNCH})
endfunction()
set(in_turn --has "\"reason\":\"trial\"" --has "\"event\":\"nccl_told\"" --has "\"event\":\"communicator_failed\"")
set(loads --set SOFTGPU_NCCL_CONNECT=2)
set(left --set SLIPRING_MIN_BYTES=4K --set SLIPRING_REDUCE_SCATTER=always --set SLIPRING_GEMM_TIMEOUT=100ms --has "\"event\":\"communicator_failed\"")
foreach(victim 0 1)
  set(killed LAUNCH --end ${victim} kill)
  foreach(ranks 2 3)
    slr_called(turn-killed ${victim} NAME _of_${ranks} RANKS ${ranks} ${killed} RUN ${in_turn})
    slr_called(turn-held ${victim} NAME _of_${ranks} RANKS ${ranks} ${killed} RUN ${in_turn} ${loads})
  endforeach()
  foreach(form grouped scatter)
    slr_called(turn-killed ${victim} NAME _${form} PLAY ${form} ${killed} RUN ${in_turn})
    slr_called(turn-held ${victim} NAME _${form} PLAY ${form} ${killed} RUN ${in_turn} ${loads})
    slr_called(turn-aborted ${victim} NAME _threads_${form} RANKS 1 PLAY ${form} threads RUN ${in_turn})
  endforeach()
  slr_called(turn-aborted ${victim} RUN ${in_turn})
  slr_called(turn-aborted ${victim} NAME _threads RANKS 1 PLAY threads RUN ${in_turn})
  foreach(form alone grouped scatter)
    slr_called(left-killed ${victim} NAME _${form} PLAY ${form} ${killed} RUN ${left} --has "\"event\":\"nccl_told\"")
  endforeach()
  slr_called(left-spared ${victim} ${killed} RUN ${left} --hasnt "\"event\":\"nccl_told\"")
  slr_called(freed ${victim} ${killed} RUN --hasnt "\"event\":\"nccl_told\"" --has "\"event\":\"communicator_failed\"")
endforeach()

slr_fault(process_turn RANKS 1 PLAY one_process turn 3 RUN ${trials} --has "communicator_failed.*ncclCommAbort")

# Mutants: what each of them leaves out, the tests above have to find.
#    slr_hung_caught(MUTANT EXPECTED as of slr_fault...)
function(slr_hung_caught name expected)
  if(SLIPRING_SANITIZE)
    return()
  endif()
  cmake_parse_arguments(F "" "" "PLAY;RUN;LAUNCH" ${ARGN})
  mutant(${name})
  list(POP_FRONT F_PLAY ranks)
  add_test(NAME fault_mutant_${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/caught.sh ${expected}
    ${CMAKE_CURRENT_SOURCE_DIR}/fault.sh --set SLIPRING_MIN_BYTES=0 --set SLIPRING_GEMM_TIMEOUT=100ms ${F_RUN} --
    $<TARGET_FILE:fault_launch> --seconds 6 ${F_LAUNCH} ${ranks} -- ${F_PLAY})
  set_tests_properties(fault_mutant_${name} PROPERTIES TIMEOUT 60 LABELS fault ENVIRONMENT
    "SOFTGPU_DIR=${SOFTGPU_DIR};SLIPRING_LIB=$<TARGET_FILE:mutant_${name}>;TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST}")
endfunction()
set(killed LAUNCH --end 1 kill)
set(hung $<TARGET_FILE:fault_hung>)
slr_hung_caught(hung_not_told "rank 0 hangs" PLAY 2 ${hung} gemm-killed 1 ${killed})
slr_hung_caught(hung_success "the GEMM returns 0" PLAY 2 ${hung} gemm-killed 1 ${killed})
slr_hung_caught(hung_not_released "rank 0 hangs" PLAY 2 ${hung} gemm-killed 1 ${killed})
slr_hung_caught(hung_stopped "the GEMM returns after|rank 0 hangs" PLAY 2 ${hung} gemm-stopped 1 LAUNCH --cont-after 4000
  RUN --set SLIPRING_STALL_TIMEOUT=500ms)
slr_hung_caught(hung_once "rank 0 hangs" PLAY 2 ${hung} gemm-two 1 ${killed})
slr_hung_caught(hung_all_told "shard is wrong" PLAY 2 ${hung} gemm-edge 1 ${killed}
  RUN --set CUDA_MODULE_LOADING=EAGER --set SOFTGPU_FAIL=cuLaunchKernel:1=sleep100)
slr_hung_caught(hung_idle_tells "status 13" PLAY 3 ${hung} gemm-spared 1 RUN ${slow})
slr_hung_caught(hung_goes_on "status 13" PLAY 3 ${hung} gemm-after 1 ${killed} RUN ${slow})
slr_hung_caught(hung_behind "status 13" PLAY 3 ${hung} gemm-behind 1 ${killed})
slr_hung_caught(hung_raised "status 13" PLAY 3 ${hung} gemm-behind 1 ${killed})
slr_hung_caught(turn_not_seen "neither done nor in error" PLAY 2 ${hung} turn-killed 1 ${killed} RUN ${trials})
slr_hung_caught(turn_at_once "an error|remote process exited" PLAY 2 ${hung} turn-ends 1 RUN ${trials}
  LAUNCH --rank 0 SOFTGPU_FAIL=cuStreamWriteValue32:1+=sleep200)
slr_hung_caught(turn_no_groups "neither done nor in error" PLAY 2 ${hung} turn-killed 1 grouped ${killed} RUN ${trials})
slr_hung_caught(turn_abort "no log line matches: communicator_failed.*ncclCommAbort" PLAY 3 ${hung} turn-aborted 1
  RUN ${trials} --has "communicator_failed.*ncclCommAbort")
slr_hung_caught(turn_freed "misuse" PLAY 1 $<TARGET_FILE:fault_one_process> turn 3 RUN ${trials})
set(called $<TARGET_FILE:fault_called>)
set(in_turn --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=0 --set SOFTGPU_NCCL_CONNECT=1)
slr_hung_caught(called_not_told "rank 0 hangs" PLAY 2 ${called} turn-killed 1 ${killed} RUN ${in_turn})
slr_hung_caught(called_not_entered "rank 0 hangs" PLAY 2 ${called} turn-killed 1 scatter ${killed} RUN ${in_turn})
slr_hung_caught(called_no_groups "the call returns" PLAY 2 ${called} turn-killed 1 grouped ${killed} RUN ${in_turn})
slr_hung_caught(called_success "the call returns" PLAY 2 ${called} turn-killed 1 ${killed} RUN ${in_turn})
slr_hung_caught(called_not_released "rank 0 hangs" PLAY 2 ${called} turn-held 1 ${killed} RUN ${in_turn} ${loads})
slr_hung_caught(called_by_others "NCCL error|remote process exited|ncclRemoteError" PLAY 3 ${called} left-spared 1 ${killed}
  RUN --set SOFTGPU_NCCL_CONNECT=1 --set SLIPRING_MIN_BYTES=4K)
slr_hung_caught(called_not_ended "rank 0 hangs" PLAY 2 ${called} turn-killed 1 ${killed} RUN ${in_turn})
if(SLIPRING_TEST_SCATTERS)
  slr_hung_caught(scatter_unbroken "of the sum is" PLAY 3 $<TARGET_FILE:fault_flight> abort-ahead 1 256000 scatter
    RUN --set SLIPRING_REDUCE_SCATTER=always)
endif()

# What fault.sh finds, and what of others it does not. Alone: what it leaves for a moment others would find, too.
if(NOT SLIPRING_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME fault_left COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/left.py ${CMAKE_CURRENT_SOURCE_DIR}/fault.sh)
  set_tests_properties(fault_left PROPERTIES TIMEOUT 60 RUN_SERIAL ON LABELS fault ENVIRONMENT
    "SOFTGPU_DIR=${SOFTGPU_DIR};SLIPRING_LIB=$<TARGET_FILE:slipring>")
endif()
