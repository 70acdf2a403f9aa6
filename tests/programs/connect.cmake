# SPDX-License-Identifier: Apache-2.0
# Connecting (plugin/connect/connect.h): when device memory is taken and given back, what a communicator finds out first, and ranks of one process.
foreach(program memory order reset threads)
  add_executable(connect_${program} connect_${program}.c $<TARGET_OBJECTS:tests_player> $<TARGET_OBJECTS:tests_ranks>)
  target_link_libraries(connect_${program} PRIVATE slipring_cuda_headers softgpu_cudart softgpu_nccl pthread)
  target_link_options(connect_${program} PRIVATE -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs)
  set_target_properties(connect_${program} PROPERTIES SKIP_BUILD_RPATH ON)
endforeach()

#   connect(NAME PROCESSES N PLAY program arguments... [RUN run.sh options...] [LAUNCH launch options...])
function(connect name)
  cmake_parse_arguments(C "" "PROCESSES" "PLAY;RUN;LAUNCH" ${ARGN})
  list(POP_FRONT C_PLAY program)
  add_test(NAME connect_${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/faults/fault.sh --set SLIPRING_MIN_BYTES=0 ${C_RUN} --
    $<TARGET_FILE:fault_launch> --seconds 60 ${C_LAUNCH} ${C_PROCESSES} -- $<TARGET_FILE:${program}> ${C_PLAY})
  set_tests_properties(connect_${name} PROPERTIES TIMEOUT 120 LABELS connect ENVIRONMENT
    "SOFTGPU_DIR=${SOFTGPU_DIR};SLIPRING_LIB=$<TARGET_FILE:slipring>;TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST}")
endfunction()

# Ranks of one process: no copy may tie another device's context (SOFTGPU_TIES), whatever memory the buffers are. cudaMalloc memory is never read in
# place by another device of its process; ncclMemAlloc's is.
foreach(protocol pull put)
  foreach(memory cudamalloc nccl)
    set(place --has "\"event\":\"summary\".*\"zero_copy\":0,\"pushed\":0,")
    if(memory STREQUAL nccl)
      set(place --hasnt "\"event\":\"summary\".*\"zero_copy\":0,\"pushed\":0,")
    endif()
    connect(threads_ahead_${protocol}_${memory} PROCESSES 1 PLAY connect_threads ahead 3 ${memory}
      RUN --set SOFTGPU_TIES=1 --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC=all --set SLIPRING_ALLOC_MIN=4K ${place} --has "\"event\":\"substitute\"")
  endforeach()
  # Two processes with two ranks each: both kinds of staging.
  connect(threads_mixed_${protocol} PROCESSES 2 PLAY connect_threads exact 2
    RUN --set SOFTGPU_TIES=1 --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ZERO_COPY=off --has "\"event\":\"substitute\"" --hasnt communicator_failed)
  connect(threads_mixed_ahead_${protocol} PROCESSES 2 PLAY connect_threads ahead 2 nccl
    RUN --set SOFTGPU_TIES=1 --set SLIPRING_PROTOCOL=${protocol} --has "\"event\":\"substitute\"" --hasnt communicator_failed)
endforeach()

# Device memory: 8 GiB, of which the program takes 90%; eight communicators would hold 1 GiB.
set(device --set SOFTGPU_MEM_BYTES=8589934592 --set SLIPRING_SLOT_BYTES=64M)
connect(memory_unused PROCESSES 2 PLAY connect_memory unused 8 RUN ${device} --hasnt "\"event\":\"connected\"")
foreach(scenario used one)
  connect(memory_${scenario} PROCESSES 3 PLAY connect_memory ${scenario} 8
    RUN ${device} --has "\"event\":\"connected\".*\"times\":2" --hasnt "\"decision\":\"pass\"")
endforeach()
# One communicator on 1 GiB: the memory that is missing is that which is in use.
set(small --set SOFTGPU_MEM_BYTES=1073741824 --set SLIPRING_SLOT_BYTES=64M)
connect(memory_ahead PROCESSES 3 PLAY connect_memory ahead 1 RUN ${small} --hasnt communicator_failed)
connect(memory_stopped PROCESSES 3 PLAY connect_memory stopped 8 LAUNCH --cont-after 3000 RUN ${device} --hasnt communicator_failed)
connect(memory_killed PROCESSES 3 PLAY connect_memory killed 8 LAUNCH --end 1 kill RUN ${device})
connect(memory_racing PROCESSES 3 PLAY connect_memory racing 8 RUN ${device} --has "\"event\":\"connected\"" --hasnt "communicator_failed|\"decision\":\"pass\"")
set_tests_properties(connect_memory_racing PROPERTIES COST 20)

# What NCCL's variables forbid, and what a pattern finds out, on one rank or on all: all pass.
function(refused name reason)
  cmake_parse_arguments(R "" "PLAY;PROCESSES" "LAUNCH;SET;SAID" ${ARGN})
  set(said --hasnt "\"event\":\"substitute\"" --has "\"event\":\"communicator\".*\"crank\":0,.*\"decision\":\"pass\",\"reason\":\"${reason}\""
    --has "\"event\":\"communicator\".*\"crank\":1,.*\"decision\":\"pass\",\"reason\":\"${reason}\"" ${R_SAID})
  connect(${name} PROCESSES 2 PLAY fault_gathers LAUNCH ${R_LAUNCH} RUN ${R_SET} ${said})
endfunction()
refused(p2p_disable p2p_disabled LAUNCH --rank 1 NCCL_P2P_DISABLE=1)
refused(p2p_loc p2p_disabled LAUNCH --rank 0 NCCL_P2P_LEVEL=LOC)
refused(p2p_level_0 p2p_disabled SET --set NCCL_P2P_LEVEL=0)
foreach(value DISABLE=0 LEVEL=SYS LEVEL=NVL LEVEL=3)
  string(REPLACE "=" "_" short ${value})
  connect(p2p_allowed_${short} PROCESSES 2 PLAY fault_gathers RUN --set NCCL_P2P_${value} --has "\"event\":\"substitute\"")
endforeach()
foreach(protocol pull put)
  foreach(rank 0 1)
    refused(p2p_broken_${protocol}_${rank} p2p_corrupts LAUNCH --rank ${rank} SOFTGPU_P2P_BROKEN=1 SET --set SLIPRING_PROTOCOL=${protocol}
      SAID --has "\"event\":\"p2p_corrupts\".*\"peer\":[01],\"by\":\"pull\"")
  endforeach()
endforeach()
foreach(protocol pull put)
  connect(p2p_broken_threads_${protocol} PROCESSES 1 PLAY connect_threads exact 3
    RUN --set SOFTGPU_P2P_BROKEN=1 --set SLIPRING_PROTOCOL=${protocol} --has "\"reason\":\"p2p_corrupts\"" --hasnt "\"event\":\"substitute\"")
endforeach()

# What was offered for a registration before the ranks were refused goes back; its deregistration waits for nobody.
connect(refused_registered PROCESSES 2 PLAY connect_threads exact 2 window
  RUN --set SLIPRING_ALLOC=off --set SOFTGPU_P2P_BROKEN=1 --has "\"reason\":\"p2p_corrupts\"" --hasnt "\"event\":\"substitute\"|deregistration_slow")

# A context that is reset with what slipring held there.
connect(reset_retired PROCESSES 2 PLAY connect_reset retired RUN --set SOFTGPU_SAME_PRIMARY=1 --has "\"event\":\"substitute\"")
connect(reset_imports PROCESSES 2 PLAY connect_reset imports RUN --set SOFTGPU_SAME_PRIMARY=1 --set SLIPRING_ALLOC=all --has "\"event\":\"substitute\"")

# First gathers in whatever order.
foreach(scenario alone crossed threads grouped)
  connect(order_${scenario} PROCESSES 2 PLAY connect_order ${scenario} RUN --has "\"event\":\"substitute\"" --hasnt "\"decision\":\"pass\"")
endforeach()
connect(order_refused PROCESSES 2 PLAY connect_order refused RUN --set SOFTGPU_P2P_BROKEN=1 --set SLIPRING_MIN_BYTES=100K
  --has "\"reason\":\"p2p_corrupts\"" --hasnt "\"event\":\"substitute\"")
connect(order_abort PROCESSES 2 PLAY connect_order abort LAUNCH --cont-after 4000)

# Mutants: without one of the checks, the test that is about it fails.
#   caught_by(MUTANT PROCESSES N PLAY ... [RUN ...])
function(caught_by mutant)
  cmake_parse_arguments(C "" "PROCESSES" "PLAY;RUN" ${ARGN})
  list(POP_FRONT C_PLAY program)
  mutant(${mutant})
  add_test(NAME ${mutant}_caught COMMAND sh -c "! \"$@\" >/dev/null 2>&1" sh
    ${PROJECT_SOURCE_DIR}/tests/faults/fault.sh --set SLIPRING_MIN_BYTES=0 ${C_RUN} --
    $<TARGET_FILE:fault_launch> --seconds 10 ${C_PROCESSES} -- $<TARGET_FILE:${program}> ${C_PLAY})
  set_tests_properties(${mutant}_caught PROPERTIES TIMEOUT 60 LABELS connect ENVIRONMENT
    "SOFTGPU_DIR=${SOFTGPU_DIR};SLIPRING_LIB=$<TARGET_FILE:mutant_${mutant}>;TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST}")
endfunction()
if(NOT SLIPRING_SANITIZE)
  caught_by(connect_near_cumemalloc PROCESSES 1 PLAY connect_threads ahead 3 cudamalloc
    RUN --set SOFTGPU_TIES=1 --set SLIPRING_PROTOCOL=pull --set SLIPRING_ALLOC=all --set SLIPRING_ALLOC_MIN=4K --has "\"event\":\"summary\".*\"zero_copy\":0,\"pushed\":0,")
  caught_by(connect_imports_not_forgotten PROCESSES 2 PLAY connect_reset imports RUN --set SLIPRING_ALLOC=all)
  caught_by(connect_reset_not_seen PROCESSES 2 PLAY connect_reset retired RUN --set SOFTGPU_SAME_PRIMARY=1)
  caught_by(connect_not_compared PROCESSES 2 PLAY fault_gathers
    RUN --set SOFTGPU_P2P_BROKEN=1)
  caught_by(connect_vote_not_idle PROCESSES 3 PLAY connect_memory ahead 1 RUN ${small})
  caught_by(connect_free_not_waited PROCESSES 3 PLAY connect_memory used 8 RUN ${device})
endif()
