# SPDX-License-Identifier: Apache-2.0
# Connecting (plugin/connect/connect.h): when device memory is taken and given back, what a communicator finds out first, and ranks of one process.
foreach(program memory order reset slots threads)
  program(connect_${program} connect_${program}.c LIBS player ranks cudart nccl)
endforeach()

set(connect ${fault_sh} --set SLIPRING_MIN_BYTES=0)

# Ranks of one process: no copy may tie another device's context (SOFTGPU_TIES), whatever memory the buffers are. All are read and written in place;
# cudaMalloc memory where its device has given access, which NCCL takes at its first call (with SOFTGPU_NCCL_CONNECT=0 it does not).
set(staged --has "\"event\":\"summary\".*\"zero_copy\":0,\"pushed\":0,")
set(placed --hasnt "\"event\":\"summary\".*\"zero_copy\":0,\"pushed\":0,")
foreach(protocol pull put)
  set(near ${connect} --set SOFTGPU_TIES=1 --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC=all --set SLIPRING_ALLOC_MIN=4K
    --has "\"event\":\"substitute\"")
  foreach(memory cudamalloc nccl)
    run(connect_threads_ahead_${protocol}_${memory} 120 ${near} ${placed} PROCESSES 1 LAUNCH --seconds 60 PLAY connect_threads ahead 3 ${memory})
  endforeach()
  foreach(words in_place apart even anew registered "in_place,apart" "even,shard=65536" "apart,anew,shard=4099")
    string(REPLACE "," ";" list "${words}")
    string(MAKE_C_IDENTIFIER ${words} case)
    run(connect_threads_${case}_${protocol} 120 ${near} ${placed} PROCESSES 1 LAUNCH --seconds 60 PLAY connect_threads ahead 3 ${list} ENV TEST_RACE=1)
  endforeach()
  set(apart --set SOFTGPU_NCCL_CONNECT=0)
  run(connect_threads_no_access_${protocol} 120 ${near} ${apart} ${staged} --has "\"event\":\"not_shared\".*has no access" PROCESSES 1 LAUNCH --seconds 60 PLAY connect_threads ahead 3)
  run(connect_threads_early_${protocol} 120 ${near} ${apart} ${staged} PROCESSES 1 LAUNCH --seconds 60 PLAY connect_threads ahead 3 early)
  run(connect_threads_late_${protocol} 120 ${near} ${apart} ${placed} PROCESSES 1 LAUNCH --seconds 60 PLAY connect_threads ahead 3 late)
  run(connect_threads_twice_${protocol} 120 ${near} ${apart} ${placed} PROCESSES 1 LAUNCH --seconds 60 PLAY connect_threads ahead 3 late twice)
  run(connect_threads_ended_${protocol} 120 ${near} ${placed} PROCESSES 1 LAUNCH --seconds 60 PLAY connect_threads ahead 3 ended)
  run(connect_threads_ended_anew_${protocol} 120 ${near} ${placed} PROCESSES 1 LAUNCH --seconds 60 PLAY connect_threads exact 3 ended anew)
  run(connect_threads_mixed_ahead_${protocol} 120 ${connect} --set SOFTGPU_TIES=1 --set SLIPRING_PROTOCOL=${protocol} --has "\"event\":\"substitute\""
    --hasnt communicator_failed PROCESSES 2 LAUNCH --seconds 60 PLAY connect_threads ahead 2 nccl)
endforeach()
# Two processes with two ranks each: both kinds of staging.
run(connect_threads_mixed 120 ${connect} --set SOFTGPU_TIES=1 --set SLIPRING_ZERO_COPY=off --has "\"event\":\"substitute\""
  --hasnt communicator_failed PROCESSES 2 LAUNCH --seconds 60 PLAY connect_threads exact 2)

# Device memory: 8 GiB, of which the program takes 90%; eight communicators would hold 1 GiB.
set(device --set SOFTGPU_MEM_BYTES=8589934592 --set SLIPRING_SLOT_BYTES=64M)
run(connect_memory_unused 120 ${connect} ${device} --hasnt "\"event\":\"connected\"" PROCESSES 2 LAUNCH --seconds 60 PLAY connect_memory unused 8)
foreach(scenario used one)
  run(connect_memory_${scenario} 120 ${connect} ${device} --has "\"event\":\"connected\".*\"times\":2" --hasnt "\"decision\":\"pass\"" PROCESSES 3
    LAUNCH --seconds 60 PLAY connect_memory ${scenario} 8)
endforeach()
run(connect_memory_suspended 120 ${connect} ${device} --has "\"event\":\"connected\".*\"times\":4" --hasnt "\"decision\":\"pass\"" PROCESSES 3
  LAUNCH --seconds 60 PLAY connect_memory suspended 4)
run(connect_mutant_suspend_keeps 120 WITH suspend_keeps ${caught_sh} "bytes are held" ${connect} ${device} PROCESSES 3
  LAUNCH --seconds 20 PLAY connect_memory suspended 4)
# One communicator on 1 GiB: the memory that is missing is that which is in use.
set(small --set SOFTGPU_MEM_BYTES=1073741824 --set SLIPRING_SLOT_BYTES=64M)
run(connect_memory_ahead 120 ${connect} ${small} --hasnt communicator_failed PROCESSES 3 LAUNCH --seconds 60 PLAY connect_memory ahead 1)
run(connect_memory_stopped 120 ${connect} ${device} --hasnt communicator_failed PROCESSES 3 LAUNCH --seconds 60 --cont-after 3000
  PLAY connect_memory stopped 8)
run(connect_memory_killed 120 ${connect} ${device} PROCESSES 3 LAUNCH --seconds 60 --end 1 kill PLAY connect_memory killed 8)
run(connect_memory_racing 120 ${connect} ${device} --has "\"event\":\"connected\"" --hasnt "communicator_failed|\"decision\":\"pass\"" PROCESSES 3
  LAUNCH --seconds 60 PLAY connect_memory racing 8 PROPERTIES COST 20)

# What NCCL's variables forbid, and what a pattern finds out, on one rank or on all: all pass.
foreach(reason p2p_disabled p2p_corrupts)
  set(${reason} --hasnt "\"event\":\"substitute\"")
  foreach(rank 0 1)
    list(APPEND ${reason} --has "\"event\":\"communicator\".*\"crank\":${rank},.*\"decision\":\"pass\",\"reason\":\"${reason}\"")
  endforeach()
endforeach()
run(connect_p2p_disable 120 ${connect} ${p2p_disabled} PROCESSES 2 LAUNCH --seconds 60 --rank 1 NCCL_P2P_DISABLE=1 PLAY fault_gathers)
run(connect_p2p_loc 120 ${connect} ${p2p_disabled} PROCESSES 2 LAUNCH --seconds 60 --rank 0 NCCL_P2P_LEVEL=LOC PLAY fault_gathers)
run(connect_p2p_level_0 120 ${connect} --set NCCL_P2P_LEVEL=0 ${p2p_disabled} PROCESSES 2 LAUNCH --seconds 60 PLAY fault_gathers)
foreach(value DISABLE=0 LEVEL=SYS LEVEL=NVL LEVEL=3)
  string(REPLACE "=" "_" short ${value})
  run(connect_p2p_allowed_${short} 120 ${connect} --set NCCL_P2P_${value} --has "\"event\":\"substitute\"" PROCESSES 2 LAUNCH --seconds 60
    PLAY fault_gathers)
endforeach()
foreach(rank 0 1)
  run(connect_p2p_broken_${rank} 120 ${connect} ${p2p_corrupts} --has "\"event\":\"p2p_corrupts\".*\"peer\":[01],\"by\":\"pull\""
    PROCESSES 2 LAUNCH --seconds 60 --rank ${rank} SOFTGPU_P2P_BROKEN=1 PLAY fault_gathers)
endforeach()
run(connect_p2p_broken_threads 120 ${connect} --set SOFTGPU_P2P_BROKEN=1 --has "\"reason\":\"p2p_corrupts\"" --hasnt "\"event\":\"substitute\""
  PROCESSES 1 LAUNCH --seconds 60 PLAY connect_threads exact 3)

# What was offered for a registration before the ranks were refused goes back; its deregistration waits for nobody.
run(connect_refused_registered 120 ${connect} --set SLIPRING_ALLOC=off --set SOFTGPU_P2P_BROKEN=1 --has "\"reason\":\"p2p_corrupts\""
  --hasnt "\"event\":\"substitute\"|deregistration_slow" PROCESSES 2 LAUNCH --seconds 60 PLAY connect_threads exact 2 window)

# A context that is reset with what slipring held there.
run(connect_reset_retired 120 ${connect} --set SOFTGPU_SAME_PRIMARY=1 --has "\"event\":\"substitute\"" PROCESSES 2 LAUNCH --seconds 60
  PLAY connect_reset retired)
run(connect_reset_imports 120 ${connect} --set SOFTGPU_SAME_PRIMARY=1 --set SLIPRING_ALLOC=all --has "\"event\":\"substitute\"" PROCESSES 2
  LAUNCH --seconds 60 PLAY connect_reset imports)

# First gathers in whatever order.
foreach(scenario alone crossed threads grouped)
  run(connect_order_${scenario} 120 ${connect} --has "\"event\":\"substitute\"" --hasnt "\"decision\":\"pass\"" PROCESSES 2 LAUNCH --seconds 60
    PLAY connect_order ${scenario})
endforeach()
run(connect_order_refused 120 ${connect} --set SOFTGPU_P2P_BROKEN=1 --set SLIPRING_MIN_BYTES=100K --has "\"reason\":\"p2p_corrupts\""
  --hasnt "\"event\":\"substitute\"" PROCESSES 2 LAUNCH --seconds 60 PLAY connect_order refused)
run(connect_order_abort 120 ${connect} PROCESSES 2 LAUNCH --seconds 60 --cont-after 4000 PLAY connect_order abort)

# Slots of several sizes. With the sizes that they have, and with far smaller ones, for which a test needs less memory.
set(slots ${connect} --set SLIPRING_REDUCE_SCATTER=always --set SLIPRING_ALL_REDUCE=always --set SLIPRING_TRIALS=0 --set SLIPRING_GRAPHS=on)
set(sizes --has "\"event\":\"connected\".*\"slot_bytes\":1048576,.*\"times\":1" --has "\"event\":\"connected\".*\"slot_bytes\":4194304,"
  --has "\"event\":\"connected\".*\"slot_bytes\":16777216,")
set(exact --hasnt "communicator_failed|capture_failed|\"event\":\"pass\"|\"decision\":\"pass\"")
run(connect_slots_grows 120 ${slots} ${sizes} ${exact} PROCESSES 2 LAUNCH --seconds 90 PLAY connect_slots grows 1048576)
foreach(scenario crossed held graphs_at_once)
  run(connect_slots_${scenario}_large 120 ${slots} ${exact} PROCESSES 2 LAUNCH --seconds 90 PLAY connect_slots ${scenario} 1048576)
endforeach()
set(4k WITH slots_small ${slots})
set(small_sizes --has "\"event\":\"connected\".*\"slot_bytes\":4096,\"staging_bytes\":8192," --has "\"slot_bytes\":65536,")
foreach(n 2 3 4)
  run(connect_slots_grows_${n} 120 ${4k} ${small_sizes} ${exact} PROCESSES ${n} LAUNCH --seconds 60 PLAY connect_slots grows 4096)
  run(connect_slots_staged_${n} 120 ${4k} --set SLIPRING_ZERO_COPY=off ${exact} PROCESSES ${n} LAUNCH --seconds 60 PLAY connect_slots grows 4096)
endforeach()
foreach(scenario crossed held graphs graphs_at_once)
  run(connect_slots_${scenario} 120 ${4k} ${exact} PROCESSES 3 LAUNCH --seconds 60 PLAY connect_slots ${scenario} 4096)
  run(connect_slots_${scenario}_staged 120 ${4k} ${exact} --set SLIPRING_ALLOC_MIN=1G PROCESSES 3 LAUNCH --seconds 60
    PLAY connect_slots ${scenario} 4096)
endforeach()
# What a rank has set holds for all. Of one that is short of memory all slots are smaller; or there are none, and what needs them is NCCL's.
run(connect_slots_given 120 ${4k} ${exact} --hasnt "\"event\":\"connected\".*\"slot_bytes\":(4096|16384|65536|262144)," PROCESSES 3
  LAUNCH --seconds 60 --rank 1 SLIPRING_SLOT_BYTES=40K PLAY connect_slots grows 4096)
run(connect_slots_shrunk 120 ${4k} --has staging_shrunk --has "\"event\":\"substitute\".*\"shard\":14332," --hasnt "communicator_failed|slots_refused"
  PROCESSES 3 LAUNCH --seconds 60 --rank 1 SLIPRING_CACHE_BYTES=32K PLAY connect_slots grows 4096)
run(connect_slots_refused 120 ${4k} --has "\"event\":\"slots_refused\".*\"crank\":0.*\"reason\":\"no_staging\",\"peer\":1"
  --has "\"event\":\"substitute\".*\"shard\":2048," --has "\"event\":\"pass\".*\"shard\":14332,.*\"reason\":\"no_staging\""
  --hasnt "communicator_failed|\"decision\":\"pass\"" PROCESSES 3 LAUNCH --seconds 60 --rank 1 SLIPRING_CACHE_BYTES=8K PLAY connect_slots grows 4096)
run(connect_slots_killed 120 ${4k} --has "\"event\":\"slots_refused\".*\"reason\":\"peer_died\",\"peer\":1" PROCESSES 3 LAUNCH --seconds 60 --end 1 kill
  PLAY connect_slots killed 4096)

# Of what a GEMM takes in parts, shards are staged: kernels that copy them would take its multiprocessors.
set(beside ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC=all --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_FLOP_PER_BYTE=0
  --has "\"event\":\"summary\".*\"fused\":[1-9].*\"staged\":[1-9][0-9]+,\"zero_copy\":[1-9]")
set(gemms --threads 2 --m 64 --n 64 --k 256 --iters 12 --warmup 12 --check full)
run(connect_threads_gemm 120 ${beside} -- $<TARGET_FILE:ag_gemm> ${gemms})

# Mutants: without one of the checks, the test that is about it fails.
run(connect_near_beside_caught 120 WITH connect_near_beside sh -c "! \"$@\" >/dev/null 2>&1" sh ${beside} -- $<TARGET_FILE:ag_gemm> ${gemms})
set(fails sh -c "! \"$@\" >/dev/null 2>&1" sh)
set(near ${fails} ${connect} --set SOFTGPU_TIES=1 --set SLIPRING_ALLOC=all --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_PROTOCOL=)
foreach(case "pulled pull" "unasked pull" "refused pull late" "taken pull ended" "kept pull late twice")
  separate_arguments(words UNIX_COMMAND "${case}")
  list(POP_FRONT words mutant protocol)
  set(set "")
  if(mutant MATCHES "unasked|refused|kept")
    set(set --set SOFTGPU_NCCL_CONNECT=0)
  endif()
  if(mutant STREQUAL refused)
    list(APPEND set ${placed})
  endif()
  run(connect_near_${mutant}_caught 60 WITH connect_near_${mutant} ${near}${protocol} ${set} PROCESSES 1 LAUNCH --seconds 15
    PLAY connect_threads ahead 3 ${words} ENV RANKS_ALARM=10)
endforeach()
run(connect_imports_not_forgotten_caught 60 WITH connect_imports_not_forgotten ${fails} ${connect} --set SLIPRING_ALLOC=all PROCESSES 2
  LAUNCH --seconds 10 PLAY connect_reset imports)
run(connect_reset_not_seen_caught 60 WITH connect_reset_not_seen ${fails} ${connect} --set SOFTGPU_SAME_PRIMARY=1 PROCESSES 2 LAUNCH --seconds 10
  PLAY connect_reset retired)
run(connect_not_compared_caught 60 WITH connect_not_compared ${fails} ${connect} --set SOFTGPU_P2P_BROKEN=1 PROCESSES 2 LAUNCH --seconds 10
  PLAY fault_gathers)
run(connect_vote_not_idle_caught 60 WITH connect_vote_not_idle ${fails} ${connect} ${small} PROCESSES 3 LAUNCH --seconds 10
  PLAY connect_memory ahead 1)
run(connect_free_not_waited_caught 60 WITH connect_free_not_waited ${fails} ${connect} ${device} PROCESSES 3 LAUNCH --seconds 10
  PLAY connect_memory used 8)
set(faulty ${slots} ${exact})
set(faulty_refused ${slots} --hasnt "\"decision\":\"pass\"")
run(connect_slots_on_pull_caught 60 WITH slots_on_pull ${fails} ${faulty} PROCESSES 2 LAUNCH --seconds 25 PLAY connect_slots held 4096)
run(connect_slots_refuse_all_caught 60 WITH slots_refuse_all ${fails} ${faulty_refused} PROCESSES 3 LAUNCH --seconds 15
  --rank 1 SLIPRING_CACHE_BYTES=8K PLAY connect_slots grows 4096)
run(connect_slots_given_here_caught 60 WITH slots_given_here ${fails} ${faulty} PROCESSES 3 LAUNCH --seconds 25 --rank 1 SLIPRING_SLOT_BYTES=40K
  PLAY connect_slots grows 4096)
run(connect_slots_overrun_caught 60 WITH slots_overrun ${fails} ${faulty} --set SLIPRING_ZERO_COPY=off PROCESSES 2 LAUNCH --seconds 25
  PLAY connect_slots grows 4096)
run(connect_slots_of_begin_caught 60 WITH slots_of_begin ${fails} ${faulty} --set SLIPRING_ALLOC_MIN=1G PROCESSES 2 LAUNCH --seconds 25
  PLAY connect_slots graphs_at_once 4096)
