# SPDX-License-Identifier: Apache-2.0
# The fault tests. What fault.sh is told says what the log must hold (JSON lines); launch judges how each rank ends, the programs judge results
# and times.
set(fault ${fault_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_GEMM_TIMEOUT=100ms)
set(staged $<TARGET_FILE:fault_stage>:$<TARGET_FILE:slipring>) # stops or kills a rank where FAULT_AT says (stage.c)

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
    run(fault_absent_${r}_of_${n} 60 ${fault} ${said} PROCESSES ${n} LAUNCH --rank ${r} LD_PRELOAD=${SLIPRING_PRELOAD_FIRST} PLAY fault_gathers)
  endforeach()
endforeach()
foreach(r 0 2)
  others(rest 3 ${r})
  all_pass(said "${rest}" rank_absent ${r})
  run(fault_off_${r} 60 ${fault} ${said} PROCESSES 3 LAUNCH --rank ${r} SLIPRING_ENABLE=off PLAY fault_gathers)
endforeach()

# On communicators that are not blocking; on some ranks, where that rank lacks what makes them so.
foreach(r 0 1)
  others(rest 3 ${r})
  all_pass(said "${rest}" rank_absent ${r})
  run(fault_later_absent_${r} 60 LIB ${nonblocking} ${fault} ${said} PROCESSES 3 LAUNCH --rank ${r} LD_PRELOAD=${SLIPRING_PRELOAD_FIRST}
    PLAY fault_gathers)
  run(fault_later_off_${r} 60 LIB ${nonblocking} ${fault} ${said} PROCESSES 3 LAUNCH --rank ${r} SLIPRING_ENABLE=off PLAY fault_gathers)
endforeach()

# Uniform settings.
foreach(row # SETTING, its value on one rank, as the log shows it, and that of the others
    "MIN_BYTES 8K 8192 0" "CHUNKS 3 3 0" "VERIFY 7 7 0" "PROTOCOL pull 1 0" "FLOP_PER_BYTE 30000 30000 6000")
  separate_arguments(row)
  list(POP_FRONT row setting value logged other)
  foreach(r 0 1)
    if(r EQUAL 0) # rank 0 is what the others are compared with
      set(values "\"peer\":1,\"setting\":\"SLIPRING_${setting}\",\"peer_value\":${other},\"rank0_value\":${logged}[,}]")
    else()
      set(values "\"peer\":1,\"setting\":\"SLIPRING_${setting}\",\"peer_value\":${logged},\"rank0_value\":${other}[,}]")
    endif()
    all_pass(said "0;1;2" settings_differ 1)
    said(said settings_differ "0;1;2" "${values}")
    run(fault_differs_${setting}_${r} 60 ${fault} ${said} PROCESSES 3 LAUNCH --rank ${r} SLIPRING_${setting}=${value} PLAY fault_gathers)
  endforeach()
endforeach()
# The same by a file, as hosts or homes have it.
set(conf ${CMAKE_CURRENT_BINARY_DIR}/differs.conf)
file(WRITE ${conf} "# of one rank\nCHUNKS=3\nTRAILS=1\n")
all_pass(said "0;1;2" settings_differ 1)
said(said settings_differ "0;1;2" "\"peer\":1,\"setting\":\"SLIPRING_CHUNKS\",\"peer_value\":3,\"rank0_value\":0[,}]")
run(fault_differs_file 60 ${fault} ${said} --has "\"event\":\"process\".*\"settings\":\"[^\"]*CHUNKS=3[^\"]*\",\"files\":\"${conf}\""
  --has "\"name\":\"SLIPRING_TRAILS\",\"value\":\"1\".*\"nearest\":\"SLIPRING_TRIALS\",\"from\":\"${conf}:3\""
  PROCESSES 3 LAUNCH --rank 1 SLIPRING_CONF_FILE=${conf} PLAY fault_gathers)
foreach(local SLOT_BYTES=8K LOG=debug FUSE=off STRICT=on CACHE_BYTES=64K AGREE_TIMEOUT=9s STALL_WARN=0 STALL_TIMEOUT=9s)
  string(REGEX REPLACE "=.*" "" short ${local})
  set(said)
  said(said substitute "0;1;2" "\"reason\":\"ring\"")
  run(fault_local_${short} 60 ${fault} ${said} PROCESSES 3 LAUNCH --rank 1 SLIPRING_${local} PLAY fault_gathers)
endforeach()

foreach(r 0 1 2)
  others(rest 3 ${r})
  set(lib $<TARGET_FILE:fault_other_version>)
  if(SLIPRING_PRELOAD_FIRST)
    set(lib ${SLIPRING_PRELOAD_FIRST}:${lib})
  endif()
  set(said --hasnt "\"event\":\"substitute\"" --has "\"event\":\"version_differs\".*${OTHER_VERSION}")
  said(said communicator "0;1;2" "\"decision\":\"pass\",\"reason\":\"version_differs\",\"peer\":[012][,}]")
  run(fault_version_${r} 60 ${fault} ${said} PROCESSES 3 LAUNCH --rank ${r} LD_PRELOAD=${lib} PLAY fault_gathers)
endforeach()

# 2. Killed during the agreement. The others go on with NCCL and get its error.
foreach(row # NAME VICTIM ROOT AT: the rank that collects, and stage.c's FAULT_AT without the action
    "member_before_hello 1 0 before:send:2" # the first is the token
    "member_after_hello 1 0 after:send:2"
    "member_before_answer 2 0 before:recvmsg:1"
    "member_after_answer 1 2 after:recvmsg:1"
    "root_before_fallback 2 2 before:sendmsg:1"
    "root_before_hello 1 1 before:recv:3" # two tokens come first
    "root_after_hello 2 2 after:recv:4"
    "root_before_block 0 0 before:memfd_create:1"
    "root_before_answer 1 1 before:sendmsg:3"
    "root_after_one_answer 2 2 after:sendmsg:3"
    "root_after_answers 0 0 after:sendmsg:4")
  separate_arguments(row)
  list(POP_FRONT row name victim root at)
  others(rest 3 ${victim})
  all_pass(said "${rest}" peer_died ${victim})
  if(name STREQUAL root_before_fallback) # before it has said a word to anybody: nobody can know more than its process
    set(said --hasnt "\"event\":\"substitute\"" --has "\"event\":\"no_meeting\",\"root_pid\":[1-9]")
    said(said communicator "${rest}" "\"decision\":\"pass\",\"reason\":\"peer_died\"")
  endif()
  run(fault_killed_${name} 60 LIB ${staged} ${fault} --set FAULT_ROOT=${root} ${said} PROCESSES 3 LAUNCH --end ${victim} kill --rank ${victim}
    FAULT_AT=${at}:kill PLAY fault_gathers --must-fail)
  run(fault_later_killed_${name} 60 LIB $<TARGET_FILE:fault_stage>:${nonblocking} ${fault} --set FAULT_ROOT=${root} ${said} PROCESSES 3
    LAUNCH --end ${victim} kill --rank ${victim} FAULT_AT=${at}:kill PLAY fault_gathers --must-fail)
endforeach()

# Before NCCL's own meeting is complete: NCCL fails where it notices (the maker of the unique id died), and else waits, as it does without slipring;
# then the job starter ends the rest.
foreach(at before:bind:1 after:listen:1)
  string(REGEX REPLACE "[:1]" "_" short ${at})
  run(fault_killed_${short}of_0 60 LIB ${staged} ${fault} --set FAULT_ROOT=0 --hasnt substitute PROCESSES 3 LAUNCH --end 0 kill --rank 0
    FAULT_AT=${at}:kill PLAY fault_gathers --must-fail)
endforeach()
# While the rank that collects accepts the others, which is during NCCL's own meeting: before it is complete or after.
foreach(at before:accept4:1 after:recv:1)
  string(REGEX REPLACE "[:1]" "_" short ${at})
  run(fault_killed_${short}of_0 60 LIB ${staged} ${fault} --set FAULT_ROOT=0 --hasnt "\"event\":\"substitute\"" PROCESSES 3 LAUNCH --end 0 kill
    --rank 0 FAULT_AT=${at}:kill PLAY fault_gathers --must-fail)
endforeach()
foreach(at before:bind:1 before:connect:1 after:connect:1 after:send:1)
  string(REGEX REPLACE "[:1]" "_" short ${at})
  run(fault_killed_${short}of_2 60 LIB ${staged} ${fault} --set FAULT_ROOT=0 --hasnt substitute PROCESSES 3 LAUNCH --term-after 300 --end 0 term
    --end 1 term --end 2 kill --rank 2 FAULT_AT=${at}:kill PLAY fault_gathers --must-fail)
endforeach()

# 3. On the device side of the agreement, by the driver's own fault injection. The victim has posted when it imports; for the last, the others are
#    slow, so that it is ready when it dies.
foreach(r 0 1 2)
  others(rest 3 ${r})
  all_pass(said "${rest}" peer_died ${r})
  foreach(call cuMemHostRegister:1 cuStreamBatchMemOp:1 cuMemAlloc:3 cuIpcGetMemHandle:1 cuIpcOpenMemHandle:1 cuIpcOpenMemHandle:2)
    string(REPLACE ":" "_" short ${call})
    if(r EQUAL 1 OR call STREQUAL "cuIpcOpenMemHandle:1")
      run(fault_killed_${short}_${r} 60 ${fault} ${said} PROCESSES 3 LAUNCH --end ${r} kill --rank ${r} SOFTGPU_FAIL=${call}=kill
        PLAY fault_gathers --must-fail)
    endif()
  endforeach()
  list(GET rest 0 a)
  list(GET rest 1 b)
  run(fault_killed_ready_${r} 60 ${fault} ${said} PROCESSES 3 LAUNCH --end ${r} kill --rank ${r} SOFTGPU_FAIL=cuIpcOpenMemHandle:2=kill100 --rank ${a}
    SOFTGPU_FAIL=cuIpcOpenMemHandle:1=sleep300 --rank ${b} SOFTGPU_FAIL=cuIpcOpenMemHandle:1=sleep300 PLAY fault_gathers --must-fail)
endforeach()

# Silent ranks: the others give up, the silent one learns of it when it is back, all are exact through NCCL.
foreach(row "before_hello 1 FAULT_AT=before:send:2:stop" "before_posting 1 FAULT_AT=after:recvmsg:1:stop" "posted 2 SOFTGPU_FAIL=cuIpcOpenMemHandle:1=stop")
  separate_arguments(row)
  list(POP_FRONT row name victim at)
  all_pass(said "0;1;2" agreement_timeout ${victim})
  run(fault_silent_${name} 60 LIB ${staged} ${fault} --set FAULT_ROOT=0 --set SLIPRING_AGREE_TIMEOUT=300ms ${said} PROCESSES 3 LAUNCH --cont-after 700
    --rank ${victim} ${at} PLAY fault_gathers)
endforeach()

# 4. In flight.
set(many_pieces --set SLIPRING_CHUNKS=8 --set SLIPRING_SLOT_BYTES=16K)
set(slow --set SLIPRING_SLOT_BYTES=64K --set SOFTGPU_TIMING=1 --set SOFTGPU_LINK_GBS=0.02) # some 100 ms for the second gather

foreach(victim 0 1 2)
  others(rest 3 ${victim})
  set(said)
  # The first to notice names the victim; the others may notice that one first.
  said(said communicator_failed "${rest}" "\"peer\":[012],\"call\":[12],\"piece\":[0-9]+,\"status\":\"peer_failed\"")
  list(APPEND said --has "\"event\":\"communicator_failed\".*\"peer\":${victim},")
  set(killed --end ${victim} kill)
  run(fault_flight_kill-before_${victim} 60 ${fault} ${many_pieces} ${said} PROCESSES 3 LAUNCH ${killed} PLAY fault_flight kill-before ${victim})
  if(victim EQUAL 1)
    run(fault_flight_kill-told_${victim} 60 ${fault} ${many_pieces} ${said} PROCESSES 3 LAUNCH ${killed} PLAY fault_flight kill-told ${victim})
  endif()
  run(fault_flight_kill-between_${victim} 60 ${fault} ${many_pieces} ${said} PROCESSES 3 LAUNCH ${killed} PLAY fault_flight kill-between ${victim})
  run(fault_flight_kill-driver_${victim}_enqueueing 60 ${fault} ${many_pieces} ${said} PROCESSES 3 LAUNCH ${killed} --rank ${victim}
    SOFTGPU_FAIL=cuStreamBatchMemOp:370=kill PLAY fault_flight kill-driver ${victim})
  run(fault_flight_kill-driver_${victim}_copying 60 ${fault} ${slow} ${said} PROCESSES 3 LAUNCH ${killed} --rank ${victim}
    SOFTGPU_FAIL=cuStreamBatchMemOp:100=kill20 PLAY fault_flight kill-driver ${victim})
  run(fault_flight_abort_${victim} 60 ${fault} ${many_pieces} --has "communicator_failed.*\"crank\":${victim},.*ncclCommAbort" ${said} PROCESSES 3
    PLAY fault_flight abort ${victim})
  run(fault_flight_abort-blocked_${victim} 60 ${fault} ${said} --has "communicator_held_up.*\"crank\":${victim}," PROCESSES 3
    PLAY fault_flight abort-blocked ${victim})
  run(fault_flight_abort-full_${victim} 60 ${fault} --set SOFTGPU_QUEUE=200 --has "communicator_failed.*\"crank\":${victim},.*ncclCommAbort"
    PROCESSES 3 PLAY fault_flight abort-full ${victim})
  run(fault_flight_destroy_${victim} 60 ${fault} ${said} PROCESSES 3 PLAY fault_flight destroy ${victim})
  set(stalled)
  said(stalled stalled "${rest}" "\"peer\":${victim},")
  run(fault_flight_stop_${victim} 60 ${fault} --set SLIPRING_STALL_WARN=200ms ${stalled} --hasnt communicator_failed PROCESSES 3 LAUNCH --cont-after
    800 PLAY fault_flight stop ${victim})
  set(stalled)
  said(stalled communicator_failed "${rest}" "\"peer\":[012],\"call\":2.*")
  list(APPEND stalled --has "\"event\":\"communicator_failed\".*\"peer\":${victim},.*\"status\":\"timeout\"")
  foreach(pieces one many)
    set(cut)
    if(pieces STREQUAL many)
      set(cut ${many_pieces})
    endif()
    run(fault_flight_stop-fails_${victim}_${pieces} 60 ${fault} --set SLIPRING_STALL_TIMEOUT=500ms ${cut} ${stalled} PROCESSES 3 LAUNCH --cont-after
      3500 PLAY fault_flight stop-fails ${victim})
  endforeach()
  set(late "")
  foreach(r ${rest})
    list(APPEND late --rank ${r} SOFTGPU_LINK_GBS=0.002)
  endforeach()
  # The slow ones have to be those that read.
  run(fault_flight_leave_${victim} 60 ${fault} --set SOFTGPU_TIMING=1 --set SLIPRING_PROTOCOL=pull --hasnt communicator_failed PROCESSES 3
    LAUNCH ${late} PLAY fault_flight leave ${victim})
  run(fault_flight_die-early_${victim} 60 ${fault} --set SOFTGPU_TIMING=1 --set SLIPRING_PROTOCOL=pull PROCESSES 3 LAUNCH ${late}
    PLAY fault_flight die-early ${victim})
endforeach()

run(fault_thawed 60 ${fault} --set SLIPRING_STALL_TIMEOUT=5s --hasnt communicator_failed PROCESSES 3 LAUNCH --cont-after 6000 PLAY fault_thawed)

# The same of reduce-scatters behind the GEMMs that make what they send. With NCCL nobody tells of a dead rank: what does without.
foreach(victim 0 1 2)
  others(rest 3 ${victim})
  set(killed --end ${victim} kill)
  run(fault_flight_stop_${victim}_scatter 60 ${fault} --set SLIPRING_REDUCE_SCATTER=always PROCESSES 3 LAUNCH --cont-after 800
    PLAY fault_flight stop ${victim} 256000 scatter)
  run(fault_flight_leave-made_${victim}_scatter 60 ${fault} --set SLIPRING_REDUCE_SCATTER=always PROCESSES 3
    PLAY fault_flight leave-made ${victim} 256000 scatter)
  run(fault_flight_abort-made_${victim}_scatter 60 ${fault} --set SLIPRING_REDUCE_SCATTER=always PROCESSES 3
    PLAY fault_flight abort-made ${victim} 256000 scatter)
  set(said --has "\"event\":\"produced\",\"op\":\"reducescatter\"")
  said(said communicator_failed "${rest}" "\"peer\":[012],.*\"status\":\"peer_failed\"")
  foreach(scenario kill-before kill-between kill-made kill-unmade kill-told)
    run(fault_flight_${scenario}_${victim}_scatter 60 ${fault} --set SLIPRING_REDUCE_SCATTER=always ${said} PROCESSES 3 LAUNCH ${killed}
      PLAY fault_flight ${scenario} ${victim} 256000 scatter)
  endforeach()
  # On the way into the call, and while parts travel and are added: some 500 ms, over a slow link.
  foreach(after 1 120 240 360)
    run(fault_flight_kill-before_${victim}_scatter_slow_${after} 60 ${fault} --set SLIPRING_REDUCE_SCATTER=always --set SOFTGPU_TIMING=1
      --set SOFTGPU_LINK_GBS=0.001 ${said} PROCESSES 3 LAUNCH ${killed} --rank ${victim} FLIGHT_KILL_AFTER=${after}
      PLAY fault_flight kill-before ${victim} 256000 scatter)
  endforeach()
  run(fault_flight_abort_${victim}_scatter 60 ${fault} --set SLIPRING_REDUCE_SCATTER=always
    --has "communicator_failed.*\"crank\":${victim},.*ncclCommAbort" ${said} PROCESSES 3 PLAY fault_flight abort ${victim} 256000 scatter)
  run(fault_flight_abort-blocked_${victim}_scatter 60 ${fault} --set SLIPRING_REDUCE_SCATTER=always ${said} PROCESSES 3
    PLAY fault_flight abort-blocked ${victim} 256000 scatter)
  run(fault_flight_abort-ahead_${victim}_scatter 60 ${fault} --set SLIPRING_REDUCE_SCATTER=always
    --has "communicator_failed.*\"crank\":${victim},.*ncclCommAbort" ${said} PROCESSES 3 PLAY fault_flight abort-ahead ${victim} 256000 scatter)
  run(fault_flight_abort-full_${victim}_scatter 60 ${fault} --set SLIPRING_REDUCE_SCATTER=always --set SOFTGPU_QUEUE=200
    --has "communicator_failed.*\"crank\":${victim},.*ncclCommAbort" PROCESSES 3 PLAY fault_flight abort-full ${victim} 256000 scatter)
  run(fault_flight_destroy_${victim}_scatter 60 ${fault} --set SLIPRING_REDUCE_SCATTER=always ${said} PROCESSES 3
    PLAY fault_flight destroy ${victim} 256000 scatter)
  set(stalled)
  said(stalled communicator_failed "${rest}" "\"peer\":[012],")
  list(APPEND stalled --has "\"event\":\"communicator_failed\".*\"peer\":${victim},.*\"status\":\"timeout\"")
  run(fault_flight_stop-fails_${victim}_scatter 60 ${fault} --set SLIPRING_REDUCE_SCATTER=always --set SLIPRING_STALL_TIMEOUT=500ms ${stalled}
    PROCESSES 3 LAUNCH --cont-after 3500 PLAY fault_flight stop-fails ${victim} 256000 scatter)
endforeach()

# And of all-reduces, in place: while parts are added, and sums are copied, before the GEMM is over.
foreach(victim 0 2)
  others(rest 3 ${victim})
  set(all_reduces --set SLIPRING_REDUCE_SCATTER=always --set SLIPRING_ALL_REDUCE=always)
  set(slowly --set SOFTGPU_TIMING=1 --set SOFTGPU_LINK_GBS=0.001 --set SOFTGPU_TFLOPS=0.000005)
  set(killed --end ${victim} kill)
  run(fault_flight_stop_${victim}_reduce 60 ${fault} ${all_reduces} PROCESSES 3 LAUNCH --cont-after 800
    PLAY fault_flight stop ${victim} 256000 reduce-in-place)
  set(said --has "\"event\":\"produced\",\"op\":\"allreduce\"")
  said(said communicator_failed "${rest}" "\"peer\":[012],.*\"status\":\"peer_failed\"")
  foreach(scenario kill-before kill-between kill-told)
    run(fault_flight_${scenario}_${victim}_reduce 60 ${fault} ${all_reduces} ${said} PROCESSES 3 LAUNCH ${killed}
      PLAY fault_flight ${scenario} ${victim} 256000 reduce)
  endforeach()
  foreach(after 1 150 300 450 600)
    run(fault_flight_kill-before_${victim}_reduce_slow_${after} 60 ${fault} ${all_reduces} ${slowly} ${said} PROCESSES 3
      LAUNCH ${killed} --rank ${victim} FLIGHT_KILL_AFTER=${after} PLAY fault_flight kill-before ${victim} 256000 reduce-in-place)
  endforeach()
  foreach(scenario abort abort-ahead)
    run(fault_flight_${scenario}_${victim}_reduce 60 ${fault} ${all_reduces} --has "communicator_failed.*\"crank\":${victim},.*ncclCommAbort"
      ${said} PROCESSES 3 PLAY fault_flight ${scenario} ${victim} 256000 reduce-in-place)
  endforeach()
  # One rank wants NCCL's sums, so all have them.
  run(fault_flight_stop_${victim}_reduce_strict 60 ${fault} ${all_reduces} --has "\"op\":\"allreduce\",.*\"crank\":1,.*\"reason\":\"all_reduce_off\""
    --hasnt "\"event\":\"substitute\",\"op\":\"allreduce\"" PROCESSES 3 LAUNCH --cont-after 800 --rank ${victim} SLIPRING_STRICT=on
    PLAY fault_flight stop ${victim} 256000 reduce)
  set(stalled)
  said(stalled communicator_failed "${rest}" "\"peer\":[012],")
  run(fault_flight_stop-fails_${victim}_reduce 60 ${fault} ${all_reduces} --set SLIPRING_STALL_TIMEOUT=500ms ${stalled}
    PROCESSES 3 LAUNCH --cont-after 3500 PLAY fault_flight stop-fails ${victim} 256000 reduce-in-place)
endforeach()

# 5. The driver refuses: while the communicator connects (calls by slipring: the program has made two allocations and a stream by then, the
#    runtime and NCCL have retained the primary context) ...
#    SOFTGPU_FAIL on each rank in turn; everybody passes and everything is exact. The rank says which call failed, and how.
set(refusals "cuMemAlloc:3+ no_staging" "cuIpcGetMemHandle:1 no_ipc" "cuIpcOpenMemHandle:1 no_ipc" "cuIpcOpenMemHandle:2 no_ipc"
  "cuMemHostRegister:1 no_control_block" "cuMemHostGetDevicePointer:1 no_control_block" "cuStreamBatchMemOp:1 no_stream_memops"
  "cuStreamWaitValue32:1 no_stream_memops" "cuDevicePrimaryCtxRetain:3=2 driver_call_failed")
foreach(n 1 2 3 4)
  list(APPEND refusals "cuStreamCreateWithPriority:${n}=2 driver_call_failed")
endforeach()
foreach(n 1 2 3 4 5)
  list(APPEND refusals "cuEventCreate:${n}=2 driver_call_failed")
endforeach()
foreach(row IN LISTS refusals)
  separate_arguments(row)
  list(POP_FRONT row call reason)
  string(REGEX REPLACE "=.*" "" short ${call})
  string(REGEX REPLACE "[:+]" "_" short ${short})
  string(REGEX REPLACE ":.*" "" function ${call})
  foreach(r 0 1 2)
    all_pass(said "0;1;2" ${reason} ${r})
    if(reason STREQUAL driver_call_failed)
      list(APPEND said --has "\"rank\":${r},.*\"event\":\"cuda_error\",\"call\":\"${function}\",\"error\":\"CUDA_ERROR_OUT_OF_MEMORY\"")
    endif()
    run(fault_refused_${short}_${r} 60 ${fault} ${said} PROCESSES 3 LAUNCH --rank ${r} SOFTGPU_FAIL=${call} PLAY fault_gathers)
  endforeach()
endforeach()
set(said --has "staging_shrunk")
said(said substitute "0;1;2" "\"reason\":\"ring\"")
run(fault_staging_retried 60 ${fault} ${said} PROCESSES 3 LAUNCH --rank 1 SOFTGPU_FAIL=cuMemAlloc:3 PLAY fault_gathers)

# ... and in a gather. Every rank gets an error.
foreach(call cuMemcpyAsync cuStreamBatchMemOp cuEventRecord)
  set(n_cuMemcpyAsync 250)
  set(n_cuStreamBatchMemOp 370)
  set(n_cuEventRecord 200)
  foreach(r 0 1)
    set(said --has "\"event\":\"cuda_error\",\"call\":\"${call}\"")
    said(said communicator_failed "0;1;2" "\"call\":[12],\"piece\":[0-9]+")
    run(fault_flight_driver-error_${r}_${call} 60 ${fault} ${many_pieces} ${said} PROCESSES 3 LAUNCH --rank ${r} SOFTGPU_FAIL=${call}:${n_${call}}
      PLAY fault_flight driver-error ${r})
  endforeach()
endforeach()

# Ranks of one process.
set(said)
said(said communicator_failed "0;1" "\"peer\":[012]")
run(fault_process_abort 60 ${fault} ${said} --has "\"event\":\"substitute\"" PROCESSES 1 PLAY fault_one_process abort 3)
all_pass(said "0;1;2" no_shared_virtual_memory "[012]")
run(fault_process_no_shared_memory 60 ${fault} ${said} PROCESSES 1 LAUNCH --rank 0 SOFTGPU_FAIL=cuMemSetAccess:5 PLAY fault_one_process exact 3)
foreach(call cuEventCreate:5 cuStreamCreateWithPriority:4)
  string(REPLACE ":" "_" short ${call})
  all_pass(said "0;1;2" driver_call_failed "[012]")
  run(fault_process_refused_${short} 60 ${fault} ${said} PROCESSES 1 LAUNCH --rank 0 SOFTGPU_FAIL=${call} PLAY fault_one_process exact 3)
endforeach()

# Budgets.
all_pass(said "0;1;2" no_staging 1)
run(fault_budget_none 60 ${fault} ${said} PROCESSES 3 LAUNCH --rank 1 SLIPRING_CACHE_BYTES=0 PLAY fault_gathers)
set(said --hasnt "\"decision\":\"pass\"")
said(said connected "0;1;2" "\"slot_bytes\":4096,")
run(fault_budget_smallest 60 ${fault} ${said} PROCESSES 3 LAUNCH --rank 1 SLIPRING_CACHE_BYTES=8K PLAY fault_gathers)
# Three fit, with ever smaller slots. Twice over, the same again: their budget has come back. With more, the others stay with NCCL.
set(said)
said(said substitute "0;1" "\"reason\":\"ring\"")
said(said connected "0;1" "\"slot_bytes\":65536,")
said(said connected "0;1" "\"slot_bytes\":32768,")
said(said connected "0;1" "\"slot_bytes\":4096,")
run(fault_budget_shared 60 ${fault} --set SLIPRING_SLOT_BYTES=64K --set SLIPRING_CACHE_BYTES=200K ${said}
  --hasnt "\"slot_bytes\":(16384|8192),|\"decision\":\"pass\"" PROCESSES 2 PLAY fault_gathers --comms 3 --rounds 2)
set(said)
said(said connected "0;1" "\"slot_bytes\":16384,")
said(said communicator "0;1" "\"decision\":\"pass\",\"reason\":\"no_staging\"")
run(fault_budget_exhausted 60 ${fault} --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_CACHE_BYTES=48K ${said} PROCESSES 2
  PLAY fault_gathers --comms 8 --rounds 1)

# 6. Bad input.
run(fault_bad_input 60 ${fault} --has "\"event\":\"substitute\"" --has bad_argument --has count_zero --hasnt communicator_failed PROCESSES 3
  PLAY fault_bad_input)
run(fault_bad_input_overflow 60 ${fault} --misuse-ok --has bad_argument PROCESSES 2 PLAY fault_bad_input overflow)
run(fault_crowded 60 ${fault} --set SOFTGPU_DEVICES=2 PROCESSES 3 PLAY fault_bad_input crowded)
run(fault_settings 60 ${fault} --set SLIPRING_CHUNKS=banana --set SLIPRING_MINBYTES=5 --set SLIPRING_SLOT_BYTES=12Q --has "\"event\":\"substitute\""
  --has "\"level\":\"warn\".*SLIPRING_CHUNKS.*banana" --has "\"level\":\"warn\".*SLIPRING_MINBYTES.*SLIPRING_MIN_BYTES"
  --has "\"level\":\"warn\".*SLIPRING_SLOT_BYTES.*12Q" PROCESSES 2 PLAY fault_gathers)

# 7. kill -9 of everything, at random times.
run(fault_kill_all 120 ${CMAKE_CURRENT_SOURCE_DIR}/kill_all.sh 20 $<TARGET_FILE:fault_launch> $<TARGET_FILE:fault_gathers>)
# 8. Gone while the others hang in a GEMM (hung.c), or while NCCL has the gather in the trials.
set(hung ${fault} --set SLIPRING_GEMM_TIMEOUT=100ms)
set(told --has "\"event\":\"gemm_told\"" --has "\"event\":\"communicator_failed\"")
set(untold --hasnt "\"event\":\"gemm_told\"")
set(slow --set SLIPRING_FUSE=off --set SOFTGPU_FAIL=cuLaunchKernel:1+=sleep400) # each GEMM, for four times as long as one may hang
set(well --hasnt "\"event\":\"(gemm_told|communicator_failed)\"")
set(trials --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=2 --has "\"reason\":\"trial\"")
foreach(victim 0 1)
  set(killed --end ${victim} kill)
  run(fault_hung_gemm-killed_${victim} 60 ${hung} ${told} PROCESSES 3 LAUNCH ${killed} PLAY fault_hung gemm-killed ${victim})
  run(fault_hung_gemm-killed_${victim}_trials 60 ${hung} --set SLIPRING_TRIALS=1 ${told} PROCESSES 2 LAUNCH ${killed}
    PLAY fault_hung gemm-killed ${victim})
  run(fault_hung_gemm-killed_${victim}_whole 60 ${hung} --set SLIPRING_FUSE=off ${told} PROCESSES 2 LAUNCH ${killed}
    PLAY fault_hung gemm-killed ${victim})
  run(fault_hung_gemm-aborted_${victim} 60 ${hung} ${told} PROCESSES 3 PLAY fault_hung gemm-aborted ${victim})
  run(fault_hung_gemm-aborted_${victim}_late 60 ${hung} --set SLIPRING_GEMM_TIMEOUT=900ms ${told} PROCESSES 3 PLAY fault_hung gemm-aborted ${victim}) # peers have raised their words by then
  run(fault_hung_gemm-aborted_${victim}_threads 60 ${hung} ${told} PROCESSES 1 PLAY fault_hung gemm-aborted ${victim} threads)
  run(fault_hung_turn-aborted_${victim}_threads 60 ${hung} ${trials} --has "communicator_failed.*ncclCommAbort" PROCESSES 1
    PLAY fault_hung turn-aborted ${victim} threads)
  run(fault_hung_gemm-stopped_${victim} 60 ${hung} --set SLIPRING_STALL_TIMEOUT=500ms ${told} PROCESSES 3 LAUNCH --cont-after 4000
    PLAY fault_hung gemm-stopped ${victim})
  run(fault_hung_gemm-two_${victim} 60 ${hung} ${told} PROCESSES 3 LAUNCH ${killed} PLAY fault_hung gemm-two ${victim})
  run(fault_hung_gemm-ends_${victim} 60 ${hung} ${well} PROCESSES 3 PLAY fault_hung gemm-ends ${victim})
  run(fault_hung_gemm-spared_${victim} 60 ${hung} ${slow} --has "\"event\":\"communicator_failed\"" ${untold} PROCESSES 3
    PLAY fault_hung gemm-spared ${victim})
  run(fault_hung_gemm-after_${victim} 60 ${hung} ${slow} ${told} PROCESSES 3 LAUNCH ${killed} PLAY fault_hung gemm-after ${victim})
  run(fault_hung_gemm-behind_${victim} 60 ${hung} --has "\"event\":\"communicator_failed\"" ${untold} PROCESSES 3 LAUNCH ${killed}
    PLAY fault_hung gemm-behind ${victim})
  foreach(ms 20 100 130 160 190 220)
    run(fault_hung_gemm-edge_${victim}_${ms} 60 ${hung} --set CUDA_MODULE_LOADING=EAGER --set SOFTGPU_FAIL=cuLaunchKernel:1=sleep${ms}
      --has "\"event\":\"communicator_failed\"" PROCESSES 2 LAUNCH ${killed} PLAY fault_hung gemm-edge ${victim})
  endforeach()
  run(fault_hung_gemm-edge_${victim}_default 60 ${hung} --set SLIPRING_GEMM_TIMEOUT=10s --set CUDA_MODULE_LOADING=EAGER
    --set SOFTGPU_FAIL=cuLaunchKernel:1=sleep900 --has "\"event\":\"communicator_failed\"" ${untold} PROCESSES 2 LAUNCH ${killed}
    PLAY fault_hung gemm-edge ${victim})
  run(fault_hung_turn-killed_${victim} 60 ${hung} ${trials} --has "communicator_failed.*NCCL's in the trials" PROCESSES 3 LAUNCH ${killed}
    PLAY fault_hung turn-killed ${victim})
  run(fault_hung_turn-killed_${victim}_grouped 60 ${hung} ${trials} --has "communicator_failed.*NCCL's in the trials" PROCESSES 3 LAUNCH ${killed}
    PLAY fault_hung turn-killed ${victim} grouped)
  run(fault_hung_turn-aborted_${victim} 60 ${hung} ${trials} --has "communicator_failed.*ncclCommAbort" PROCESSES 3
    PLAY fault_hung turn-aborted ${victim})
  others(rest 3 ${victim})
  set(late "")
  foreach(r ${rest}) # their words come late, those of NCCL's calls as well
    list(APPEND late --rank ${r} SOFTGPU_FAIL=cuStreamWriteValue32:1+=sleep200)
  endforeach()
  run(fault_hung_turn-ends_${victim} 60 ${hung} ${trials} ${well} PROCESSES 3 LAUNCH ${late} PLAY fault_hung turn-ends ${victim})
  run(fault_hung_turn-ends_${victim}_grouped 60 ${hung} ${trials} ${well} PROCESSES 3 LAUNCH ${late} PLAY fault_hung turn-ends ${victim} grouped)
endforeach()

# 9. Gone while the others hang inside of a call of NCCL (called.c).
set(called ${fault} --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=0 --set SOFTGPU_NCCL_CONNECT=1)
set(in_turn --has "\"reason\":\"trial\"" --has "\"event\":\"nccl_told\"" --has "\"event\":\"communicator_failed\"")
set(loads --set SOFTGPU_NCCL_CONNECT=2)
set(left --set SLIPRING_MIN_BYTES=4K --set SLIPRING_REDUCE_SCATTER=always --set SLIPRING_GEMM_TIMEOUT=100ms --has "\"event\":\"communicator_failed\"")
foreach(victim 0 1)
  set(killed --end ${victim} kill)
  foreach(ranks 2 3)
    run(fault_called_turn-killed_${victim}_of_${ranks} 60 ${called} ${in_turn} PROCESSES ${ranks} LAUNCH ${killed}
      PLAY fault_called turn-killed ${victim})
    run(fault_called_turn-held_${victim}_of_${ranks} 60 ${called} ${in_turn} ${loads} PROCESSES ${ranks} LAUNCH ${killed}
      PLAY fault_called turn-held ${victim})
  endforeach()
  foreach(form grouped scatter)
    run(fault_called_turn-killed_${victim}_${form} 60 ${called} ${in_turn} PROCESSES 3 LAUNCH ${killed}
      PLAY fault_called turn-killed ${victim} ${form})
    run(fault_called_turn-held_${victim}_${form} 60 ${called} ${in_turn} ${loads} PROCESSES 3 LAUNCH ${killed}
      PLAY fault_called turn-held ${victim} ${form})
    run(fault_called_turn-aborted_${victim}_threads_${form} 60 ${called} ${in_turn} PROCESSES 1
      PLAY fault_called turn-aborted ${victim} ${form} threads)
  endforeach()
  # The call is in progress, and who asks is told.
  foreach(form grouped scatter)
    run(fault_later_turn-killed_${victim}_${form} 60 LIB ${nonblocking} ${called} --has "\"reason\":\"trial\"" --has "\"event\":\"communicator_failed\""
      PROCESSES 3 LAUNCH ${killed} PLAY fault_called turn-killed ${victim} ${form})
  endforeach()
  run(fault_called_turn-aborted_${victim} 60 ${called} ${in_turn} PROCESSES 3 PLAY fault_called turn-aborted ${victim})
  run(fault_called_turn-aborted_${victim}_threads 60 ${called} ${in_turn} PROCESSES 1 PLAY fault_called turn-aborted ${victim} threads)
  foreach(form alone grouped scatter)
    run(fault_called_left-killed_${victim}_${form} 60 ${called} ${left} --has "\"event\":\"nccl_told\"" PROCESSES 3 LAUNCH ${killed}
      PLAY fault_called left-killed ${victim} ${form})
  endforeach()
  # The race oracle judges what a failed call still writes.
  foreach(case spared behind)
    set(others ${called} ${left} --hasnt "\"event\":\"nccl_told\"" PROCESSES 3 LAUNCH ${killed} PLAY fault_called left-${case} ${victim} ENV TEST_RACE=1)
    run(fault_called_left-${case}_${victim} 60 ${others})
    run(fault_later_left-${case}_${victim} 60 LIB ${nonblocking} ${others})
  endforeach()
  run(fault_called_freed_${victim} 60 ${called} --hasnt "\"event\":\"nccl_told\"" --has "\"event\":\"communicator_failed\"" PROCESSES 3
    LAUNCH ${killed} PLAY fault_called freed ${victim})
endforeach()

run(fault_process_turn 60 ${fault} ${trials} --has "communicator_failed.*ncclCommAbort" PROCESSES 1 PLAY fault_one_process turn 3)

# Mutants: what each of them leaves out, the tests above have to find.
set(killed --end 1 kill)
run(fault_mutant_hung_not_told 60 WITH hung_not_told ${caught_sh} "rank 0 hangs" ${fault} PROCESSES 2 LAUNCH --seconds 6 ${killed}
  PLAY fault_hung gemm-killed 1)
run(fault_mutant_hung_success 60 WITH hung_success ${caught_sh} "the GEMM returns 0" ${fault} PROCESSES 2 LAUNCH --seconds 6 ${killed}
  PLAY fault_hung gemm-killed 1)
run(fault_mutant_hung_not_released 60 WITH hung_not_released ${caught_sh} "rank 0 hangs" ${fault} PROCESSES 2 LAUNCH --seconds 6 ${killed}
  PLAY fault_hung gemm-killed 1)
run(fault_mutant_hung_stopped 60 WITH hung_stopped ${caught_sh} "the GEMM returns after|rank 0 hangs" ${fault} --set SLIPRING_STALL_TIMEOUT=500ms
  PROCESSES 2 LAUNCH --seconds 6 --cont-after 4000 PLAY fault_hung gemm-stopped 1)
run(fault_mutant_hung_once 60 WITH hung_once ${caught_sh} "rank 0 hangs" ${fault} PROCESSES 2 LAUNCH --seconds 6 ${killed} PLAY fault_hung gemm-two 1)
run(fault_mutant_hung_all_told 60 WITH hung_all_told ${caught_sh} "shard is wrong" ${fault} --set CUDA_MODULE_LOADING=EAGER
  --set SOFTGPU_FAIL=cuLaunchKernel:1=sleep100 PROCESSES 2 LAUNCH --seconds 6 ${killed} PLAY fault_hung gemm-edge 1)
run(fault_mutant_hung_idle_tells 60 WITH hung_idle_tells ${caught_sh} "status 13" ${fault} ${slow} PROCESSES 3 LAUNCH --seconds 6
  PLAY fault_hung gemm-spared 1)
run(fault_mutant_hung_goes_on 60 WITH hung_goes_on ${caught_sh} "status 13" ${fault} ${slow} PROCESSES 3 LAUNCH --seconds 6 ${killed}
  PLAY fault_hung gemm-after 1)
run(fault_mutant_hung_behind 60 WITH hung_behind ${caught_sh} "status 13" ${fault} PROCESSES 3 LAUNCH --seconds 6 ${killed}
  PLAY fault_hung gemm-behind 1)
run(fault_mutant_hung_raised 60 WITH hung_raised ${caught_sh} "status 13" ${fault} PROCESSES 3 LAUNCH --seconds 6 ${killed}
  PLAY fault_hung gemm-behind 1)
run(fault_mutant_turn_not_seen 60 WITH turn_not_seen ${caught_sh} "neither done nor in error" ${fault} ${trials} PROCESSES 2 LAUNCH --seconds 6
  ${killed} PLAY fault_hung turn-killed 1)
run(fault_mutant_turn_at_once 60 WITH turn_at_once ${caught_sh} "an error|remote process exited" ${fault} ${trials} PROCESSES 2 LAUNCH --seconds 6
  --rank 0 SOFTGPU_FAIL=cuStreamWriteValue32:1+=sleep200 PLAY fault_hung turn-ends 1)
run(fault_mutant_turn_no_groups 60 WITH turn_no_groups ${caught_sh} "neither done nor in error" ${fault} ${trials} PROCESSES 2 LAUNCH --seconds 6
  ${killed} PLAY fault_hung turn-killed 1 grouped)
run(fault_mutant_turn_abort 60 WITH turn_abort ${caught_sh} "no log line matches: communicator_failed.*ncclCommAbort" ${fault} ${trials}
  --has "communicator_failed.*ncclCommAbort" PROCESSES 3 LAUNCH --seconds 6 PLAY fault_hung turn-aborted 1)
run(fault_mutant_turn_freed 60 WITH turn_freed ${caught_sh} "misuse" ${fault} ${trials} PROCESSES 1 LAUNCH --seconds 6 PLAY fault_one_process turn 3)
set(in_turn --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=0 --set SOFTGPU_NCCL_CONNECT=1)
run(fault_mutant_called_not_told 60 WITH called_not_told ${caught_sh} "rank 0 hangs" ${fault} ${in_turn} PROCESSES 2 LAUNCH --seconds 6 ${killed}
  PLAY fault_called turn-killed 1)
run(fault_mutant_called_not_entered 60 WITH called_not_entered ${caught_sh} "rank 0 hangs" ${fault} ${in_turn} PROCESSES 2 LAUNCH --seconds 6
  ${killed} PLAY fault_called turn-killed 1 scatter)
run(fault_mutant_called_no_groups 60 WITH called_no_groups ${caught_sh} "the call returns" ${fault} ${in_turn} PROCESSES 2 LAUNCH --seconds 6
  ${killed} PLAY fault_called turn-killed 1 grouped)
run(fault_mutant_called_success 60 WITH called_success ${caught_sh} "the call returns" ${fault} ${in_turn} PROCESSES 2 LAUNCH --seconds 6 ${killed}
  PLAY fault_called turn-killed 1)
run(fault_mutant_called_not_released 60 WITH called_not_released ${caught_sh} "rank 0 hangs" ${fault} ${in_turn} ${loads} PROCESSES 2 LAUNCH --seconds
  6 ${killed} PLAY fault_called turn-held 1)
run(fault_mutant_called_by_others 60 WITH called_by_others ${caught_sh} "NCCL error|remote process exited|ncclRemoteError" ${fault}
  --set SOFTGPU_NCCL_CONNECT=1 --set SLIPRING_MIN_BYTES=4K PROCESSES 3 LAUNCH --seconds 6 ${killed} PLAY fault_called left-spared 1)
run(fault_mutant_left_not_joined 60 WITH left_not_joined ${caught_sh} "misuse: .*race|shard is wrong" ${fault} --set SLIPRING_MIN_BYTES=4K PROCESSES 3
  LAUNCH --seconds 6 ${killed} PLAY fault_called left-behind 1 ENV TEST_RACE=1)
run(fault_mutant_called_not_ended 60 WITH called_not_ended ${caught_sh} "rank 0 hangs" ${fault} ${in_turn} PROCESSES 2 LAUNCH --seconds 6 ${killed}
  PLAY fault_called turn-killed 1)
run(fault_mutant_scatter_unbroken 60 WITH scatter_unbroken ${caught_sh} "of the sum is" ${fault} --set SLIPRING_REDUCE_SCATTER=always PROCESSES 3
  LAUNCH --seconds 6 PLAY fault_flight abort-ahead 1 256000 scatter)

# What fault.sh finds, and what of others it does not. Alone: what it leaves for a moment others would find, too.
if(NOT SLIPRING_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  run(fault_left 60 ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/left.py ${fault_sh} PROPERTIES RUN_SERIAL ON)
endif()
