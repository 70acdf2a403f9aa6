# SPDX-License-Identifier: Apache-2.0
# Buffers that a program registers with NCCL: whole programs on the software GPU, and mutants of the library that they must catch. The ranks come
# to each call in a fixed order, so what is zero-copy, pushed and staged is known exactly.
set(counts ${CMAKE_CURRENT_SOURCE_DIR}/zero_counts.sh)

program(register_cases register.c buffers.c virtual.c LIBS zero forms ranks cudart cublas nccl cuda)
program(register_process register_process.c virtual.c LIBS zero forms ranks cudart cublas nccl cuda)
set(cases $<TARGET_FILE:register_cases>)
set(process $<TARGET_FILE:register_process>)

# Time enough for a machine that does something else: a registration that is given up is staged, and the counts would differ.
# With put, as far as nothing else is said: the only protocol that stages nothing, whoever comes first.
set(settings --set SLIPRING_PROTOCOL=put --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_SLOT_BYTES=256K --set SLIPRING_REGISTER_TIMEOUT=40s)

# ---- zero-copy from the first call on ----
# With both buffers registered nothing is staged: of each pair, whose owner comes first is read where it lies, and whose reader comes first is pushed
# to. Each rank has two blocks; each is mapped once by each peer.
foreach(how register window group)
  foreach(alloc collective off)
    run(register_first_${how}_${alloc} 120 ${counts} ${settings} --set SLIPRING_ALLOC=${alloc}
      --want "calls == 18 && staged == 0 && zero_copy == 18 && pushed == 18"
      --want "exports == 6 && imports == 12 && import_hits == 0 && import_closes == 12" -- ${cases} 3 first ${how} cuda both 6)
  endforeach()
endforeach()
# The wait is there: peers need 60 ms to map a block.
run(register_first_slow 120 ${counts} ${settings} --set SOFTGPU_FAIL=cuIpcOpenMemHandle_v2:1+=sleep60 --want "staged == 0 && imports == 4"
  -- ${cases} 2 first window cuda both 4)
run(register_first_small 120 ${counts} ${settings} --set SLIPRING_ALLOC_MIN=1G --want "staged == 0 && zero_copy == 18"
  -- ${cases} 3 first register cuda both 6)
# With one buffer, the pairs in the other order stage. With the protocol pull nobody writes into a receive buffer.
run(register_first_send 120 ${counts} ${settings} --set SLIPRING_ALLOC=off --want "zero_copy == 6 && staged == 6 && pushed == 0 && exports == 2"
  -- ${cases} 2 first register cuda send 6)
run(register_first_recv 120 ${counts} ${settings} --set SLIPRING_ALLOC=off --want "pushed == 6 && staged == 6 && zero_copy == 0 && exports == 2"
  -- ${cases} 2 first window cuda recv 6)
run(register_first_pull 120 ${counts} ${settings} --set SLIPRING_PROTOCOL=pull --want "zero_copy + staged == 12 && staged <= 4"
  -- ${cases} 2 first window cuda both 6)
# One that offers nothing is still offered to.
run(register_first_off_one 120 ${counts} ${settings} --set ZERO_SET_1=SLIPRING_ZERO_COPY=off
  --want "staged_0 == 3 && staged_1 == 3 && zero_copy_0 == 3 && pushed_1 == 3"
  --want "exports_0 == 2 && exports_1 == 0 && imports_0 == 0 && imports_1 == 2" -- ${cases} 2 first register cuda both 6)
run(register_first_off 120 ${counts} ${settings} --set SLIPRING_ZERO_COPY=off --want "staged == 12 && exports + imports == 0"
  -- ${cases} 2 first register cuda both 6)

# ---- the end of a registration ----
# Without the block cache the memory goes back to the driver at once, and comes again with other data. After its end a buffer is staged.
run(register_again 120 ${counts} ${settings} --set SLIPRING_ALLOC=off --want "zero_copy == 10 && pushed == 10 && staged == 20"
  --want "exports == 40 && imports == 40 && import_closes == 40" -- ${cases} 2 again register cuda both 10)
run(register_again_kept 120 ${counts} ${settings} --want "zero_copy + pushed + staged == 40 && imports == import_closes"
  -- ${cases} 2 again window cuda both 10)
run(register_early 120 ${counts} ${settings} --set SLIPRING_ALLOC=off --want "staged == 0 && imports == import_closes"
  -- ${cases} 3 early register cuda both 6)

# ---- virtual memory ----
run(register_virtual 120 ${counts} ${settings}
  --want "staged == 0 && zero_copy == 18 && pushed == 18 && imports == 12 && import_closes == 12 && exports >= 12"
  -- ${cases} 3 first window virtual both 6)
run(register_nccl 120 ${counts} ${settings} --want "staged == 0 && imports == 12 && import_closes == 12" -- ${cases} 3 first group nccl both 6)
run(register_nccl_two 120 ${counts} ${settings} --set SLIPRING_ALLOC=off --want "staged == 0 && imports == 4" -- ${cases} 2 first register nccl both 6)
run(register_nccl_again 120 ${counts} ${settings} --want "zero_copy == 20 && pushed == 20 && staged == 0 && imports == 40"
  -- ${cases} 2 again window nccl both 10)
run(register_virtual_alloc_off 120 ${counts} ${settings} --set SLIPRING_ALLOC=off --want "staged == 0 && imports == 4"
  -- ${cases} 2 first register virtual both 6)
# After its registration it stays known: of the two calls before it is mapped anew none is staged.
run(register_remap 120 ${counts} ${settings} --want "zero_copy >= 8 && pushed >= 4 && imports >= 16" -- ${cases} 2 remap register virtual both 4)
run(register_remap_alloc_off 120 ${counts} ${settings} --set SLIPRING_ALLOC=off
  --want "zero_copy == 4 && pushed == 4 && staged == 16 && imports >= 16" -- ${cases} 2 remap register virtual both 4)
# Buffers that span two allocations, as in PyTorch's expandable segments.
run(register_pieces 120 ${counts} ${settings}
  --want "staged == 0 && zero_copy == 18 && pushed == 18 && imports == 12 && import_closes == 12 && exports >= 12"
  -- ${cases} 3 first window pieces both 6)
run(register_pieces_remap 120 ${counts} ${settings} --want "zero_copy >= 8 && pushed >= 4 && imports >= 16" -- ${cases} 2 remap register pieces both 4)
# Of the six rounds at each new place the first one is staged, and the first ones behind an unmapping.
foreach(protocol pull put)
  run(register_grows_${protocol} 120 ${counts} ${settings} --set SLIPRING_PROTOCOL=${protocol} --want "staged <= 60 && imports >= 8 && imports == import_closes"
    -- ${cases} 2 grows not cuda both 6)
endforeach()
run(register_grows_three 120 ${counts} ${settings} --set SLIPRING_PROTOCOL=auto --want "imports == import_closes" -- ${cases} 3 grows not cuda both 6)
# Only the first gathers of all are staged: peers map what comes in the stead of what was unmapped before it is used, and expect shards there.
foreach(memory virtual pieces)
  run(register_sleeps_${memory} 120 ${counts} ${settings} --set SLIPRING_PROTOCOL=pull --want "staged <= 6 && imports >= 20"
    -- ${cases} 2 sleeps not ${memory} both 5)
endforeach()
run(register_pieces_files 120 ${counts} ${settings} --want "staged == 0" -- ${cases} 2 files register pieces both 8)
# It is made such that it can be shared, unless the driver refuses that.
run(register_private 120 ${counts} ${settings} --want "staged == 0 && zero_copy + pushed == 12" -- ${cases} 2 first window private both 6)
run(register_private_refused 120 ${counts} ${settings} --set SOFTGPU_FAIL=cuMemCreate:1=801 --has "not_shared" --want "staged == 6 && pushed == 6"
  -- ${cases} 2 first register private both 6)
foreach(memory pool)
  run(register_not_shared_${memory} 120 ${counts} ${settings} --has "not_shared" --want "staged == 12 && imports == 0"
    -- ${cases} 2 first register ${memory} both 6)
endforeach()
run(register_files 120 ${counts} ${settings} --want "staged == 0" -- ${cases} 2 files register virtual both 8)
run(register_junk 120 ${counts} ${settings} -- ${cases} 2 junk register virtual both 8)
# Nobody has registered it. When the peers have mapped it depends on the machine.
set(met_pull_want)
set(met_put_want)
if(SLIPRING_LONG_TESTS)
  set(met_pull_want --want "zero_copy > 0 && imports == 2")
  set(met_put_want --want "pushed > 0 && imports == 4")
endif()
run(register_met 120 ${counts} ${settings} --set SLIPRING_PROTOCOL=pull ${met_pull_want} -- ${cases} 2 met not virtual both 2)
run(register_met_put 120 ${counts} ${settings} ${met_put_want} -- ${cases} 2 met not virtual both 2)
# The program unmaps while the memory is looked at and exported (cache/virtual.h): the stand-in reports what drivers do not survive.
foreach(call cuMemGetAllocationPropertiesFromHandle cuMemExportToShareableHandle)
  run(register_books_${call} 120 ${run_sh} ${settings} --set SOFTGPU_FAIL=${call}:1+=sleep60 --set SLIPRING_PROTOCOL=pull
    -- ${cases} 2 remap not virtual both 300)
endforeach()
# So does slipring, of what it has mapped for peers, when that lies where the program's memory was looked for before. The ranks share a device.
set(anew --set SLIPRING_PROTOCOL=pull --set SOFTGPU_DEVICES=1 --set ZERO_SET_0=NCCL_HOSTID=a --set ZERO_SET_1=NCCL_HOSTID=b
  --set SOFTGPU_FAIL=cuMemGetAllocationPropertiesFromHandle:1+=sleep30)
run(register_anew 120 ${run_sh} ${settings} ${anew} -- ${cases} 2 anew not virtual both 12)
run(register_files_killed 120 ${run_sh} ${settings} --set ZERO_SET_1=SOFTGPU_FAIL=cuMemImportFromShareableHandle:1=kill --status 137
  -- ${cases} 2 dies register virtual both)

# ---- several ranks in one process: the pointer itself ----
foreach(alloc collective off)
  # Another device's cuMemAlloc memory is not touched in the same process without access, and is not mapped with it. The end of a registration waits
  # until the others have closed it.
  run(register_process_cuda_${alloc} 120 ${counts} ${settings} --set SLIPRING_ALLOC=${alloc} --set SOFTGPU_NCCL_CONNECT=0
    --want "staged == 24 && imports == 0 && mapped == 0" -- ${process} 3 cuda 4)
  run(register_process_near_${alloc} 120 ${counts} ${settings} --set SLIPRING_ALLOC=${alloc} --want "zero_copy + pushed > staged && imports == 0 && mapped > 0"
    -- ${process} 3 cuda 300)
endforeach()
run(register_process_virtual 120 ${counts} ${settings} --want "staged == 0 && zero_copy + pushed == 24 && mapped == 12" -- ${process} 3 virtual 4)
# Also memory to which the program has given its own device access only: it is mapped anew for the peers.
run(register_process_own 120 ${counts} ${settings} --want "staged == 0 && zero_copy + pushed == 24 && mapped == 12 && imports == import_closes"
  -- ${process} 3 own 4)

# ---- several communicators ----
run(register_comms 120 ${counts} ${settings}
  --want "staged == 0 && exports == 6 && imports == 12 && import_hits == 36 && import_closes == 12 && mapped == 48"
  -- ${cases} 3 comms register cuda both)
run(register_comms_virtual 120 ${counts} ${settings} --want "staged == 0 && imports == 4 && import_hits == 12 && import_closes == 4 && mapped == 16"
  -- ${cases} 2 comms register virtual both)

# ---- peers that die, communicators that end early ----
run(register_dies 120 ${run_sh} ${settings} --set SLIPRING_ALLOC=off --set ZERO_SET_1=SOFTGPU_FAIL=cuIpcOpenMemHandle_v2:2=kill --status 137
  -- ${cases} 2 dies register cuda both)
run(register_abort 120 ${run_sh} ${settings} -- ${cases} 2 abort window cuda both)

# ---- more than fits ----
run(register_many 120 ${counts} ${settings} --set SLIPRING_PROTOCOL=pull --want "imports <= 256 && zero_copy > 0 && imports == import_closes"
  -- ${cases} 2 many not cuda both 3)
if(SLIPRING_LONG_TESTS) # depends on the machine
  run(register_many_then_few 120 ${counts} ${settings} --set SLIPRING_PROTOCOL=pull --want "imports > 256" -- ${cases} 2 many not cuda recv 10)
endif()

# ---- faults of the driver ----
# The program makes a call of its own that fails once more; slipring stages. A release that fails leaves the allocation retained, which is no
# misuse of slipring's: SOFTGPU_BOOKS.
foreach(case "cuMemRetainAllocationHandle 1 3" "cuMemGetAllocationPropertiesFromHandle 1 1" "cuMemExportToShareableHandle 1 1"
    "cuMemImportFromShareableHandle 1 1" "cuMemAddressReserve 3 3" "cuMemMap 3 3" "cuMemSetAccess 3 3" "cuMemUnmap 1 2"
    "cuMemAddressFree 1 2" "cuMemRelease 3 5" "cuMemGetAddressRange 1 1" "cuPointerGetAttribute 1 2")
  separate_arguments(case)
  list(GET case 0 function)
  run(register_fault_${function} 120 ${CMAKE_CURRENT_SOURCE_DIR}/register_faults.sh ${case} 1 -- ${counts} ${settings}
    -- ${cases} 2 remap register virtual both 1)
  if(function STREQUAL cuMemRelease)
    set_property(TEST register_fault_${function} APPEND PROPERTY ENVIRONMENT SOFTGPU_BOOKS=0)
  endif()
endforeach()
foreach(function cuIpcGetMemHandle cuIpcCloseMemHandle)
  # The program has one rank call first, and NCCL gets the calls of some runs, whose first one would wait for the other rank.
  run(register_fault_${function}_legacy 120 ${CMAKE_CURRENT_SOURCE_DIR}/register_faults.sh ${function} 2 3 1 -- ${counts} ${settings}
    --set SLIPRING_ALLOC=off -- ${cases} 2 first register cuda both 2 ENV SOFTGPU_NCCL_CONNECT=0)
endforeach()

# ---- mutants: wrong results, or misuse of the software GPU; what a mutant waits for may never come ----
set(may_wait ${counts} ${settings} --set SLIPRING_REGISTER_TIMEOUT=1s)
run(register_mutant_no_writers_wait 120 MUTANT register_no_writers_wait ${may_wait} -- ${cases} 2 abort window cuda both)
run(register_mutant_no_close_wait 120 MUTANT register_no_close_wait ${may_wait} --set SLIPRING_ALLOC=off
  --set SOFTGPU_FAIL=cuIpcCloseMemHandle:1+=sleep40 -- ${cases} 2 again register cuda both 10)
run(register_mutant_close_at_once 120 MUTANT register_close_at_once ${may_wait} --set SLIPRING_ALLOC=off -- ${cases} 2 early register cuda both 8
  ENV RANKS_SECONDS=20) # a rank waits for ever
run(register_mutant_unmaps_beside 120 MUTANT register_unmaps_beside ${may_wait} ${anew} -- ${cases} 2 anew not virtual both 12)
run(register_mutant_stale_mapping 120 MUTANT register_stale_mapping ${may_wait} -- ${cases} 2 remap register virtual both 4)
