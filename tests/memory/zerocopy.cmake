# SPDX-License-Identifier: Apache-2.0
# Shards that are taken from the sender's block (zero-copy) or written into the receiver's buffer (pushed): whole programs on the
# software GPU, and mutants of the library that they must catch. Every program also passes without slipring.
set(counts ${CMAKE_CURRENT_SOURCE_DIR}/zero_counts.sh)

# How often a shard goes which way depends on which rank comes first, so on the machine's load. Without SLIPRING_LONG_TESTS the conditions on such
# counts are left out (results, order and misuse are checked all the same), and so are long runs.
set(zero_long "_1000$|_slow$|_slow_open_|^group_|^ahead_|^deep_|^plain_|_chunks$")

# zero(NAME TIMEOUT zero_counts.sh-arguments...): run(), without what is for SLIPRING_LONG_TESTS.
set(zero ${counts} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_SLOT_BYTES=256K)
function(zero name timeout)
  if(NOT SLIPRING_LONG_TESTS)
    if(name MATCHES "${zero_long}")
      return()
    endif()
    set(kept)
    set(skip FALSE)
    foreach(argument IN LISTS ARGN)
      if(argument STREQUAL "--want")
        set(skip TRUE)
      elseif(skip)
        set(skip FALSE)
      else()
        list(APPEND kept "${argument}")
      endif()
    endforeach()
    set(ARGN ${kept})
  endif()
  run(zero_${name} ${timeout} ${zero} ${ARGN})
endfunction()

set(ring_only --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\",\"op\":\"allgather\"")

foreach(name churn late blocks expect given ordered)
  program(zero_${name} zero_${name}.c LIBS zero forms ranks cudart cublas nccl)
endforeach()
set(expect $<TARGET_FILE:zero_expect>)
set(churn $<TARGET_FILE:zero_churn>)
set(late $<TARGET_FILE:zero_late>)
set(blocks $<TARGET_FILE:zero_blocks>)
set(pull --set SLIPRING_PROTOCOL=pull)
set(put --set SLIPRING_PROTOCOL=put)

# ---- the same three sizes in every iteration ----
# Each block is mapped once, however long it goes on: what is sent, and with put what is received into, of three sizes and each peer. Pairs
# that come to a call in the other order stage with pull, and push with put.
foreach(n 2 4)
  math(EXPR sent "3 * (${n} - 1)")
  math(EXPR both "6 * (${n} - 1)")
  foreach(iterations 300 1000)
    zero(churn_pull_${n}_${iterations} 300 ${pull} ${ring_only} --want "mapped_0 == ${sent}" --want "mapped == ${n} * ${sent}"
      --want "zero_copy * 5 > staged" --want "pushed == 0" -- ${churn} ${n} ${iterations} stable)
    zero(churn_put_${n}_${iterations} 300 ${put} ${ring_only} --want "mapped_0 == ${both}" --want "mapped == ${n} * ${both}"
      --want "staged <= 24 * ${n} * (${n} - 1)" --want "zero_copy > 0 && pushed > 0" -- ${churn} ${n} ${iterations} stable)
  endforeach()
endforeach()
# Always, also in the short run: after a thousand iterations each block has been opened once, and no more.
run(zero_opens 120 ${zero} ${put} ${ring_only} --want "imports_0 == 6 && imports_1 == 6 && import_closes == 12" -- ${churn} 2 1000 stable)
# One rank sends from another block every time, or from memory that is not known: it stages, the others do not.
zero(grow_pull 300 ${pull} ${ring_only} --want "zero_copy_2 * 10 < staged_2" --want "zero_copy_0 * 5 > staged_0"
  --want "zero_copy_1 * 5 > staged_1" -- ${churn} 3 300 stable grow)
zero(alloc_off_one_pull 300 --set ZERO_SET_2=SLIPRING_ALLOC=off ${pull} ${ring_only} --want "zero_copy_2 == 0 && staged_2 == 2 * calls_2"
  --want "zero_copy_0 * 5 > staged_0" --want "zero_copy_1 * 5 > staged_1" -- ${churn} 3 300)
# With put its peers have mapped its receive buffers, or not: what it sends goes into theirs.
zero(grow_put 300 ${put} ${ring_only} --want "zero_copy_2 * 10 < calls_2" --want "pushed_2 > 0 && pushed_0 > 0" -- ${churn} 3 300 grow)
zero(alloc_off_one_put 300 --set ZERO_SET_2=SLIPRING_ALLOC=off ${put} ${ring_only} --want "zero_copy_2 == 0 && pushed_2 > 0" -- ${churn} 3 300)
# auto: put where ranks share a device.
zero(auto_shared 120 --has "\"protocol\":\"put\"" --hasnt "\"protocol\":\"pull\"" -- $<TARGET_FILE:ag_gemm> --ranks 3 --one-gpu --bytes 65536 --iters 5)
zero(auto_apart 120 --set SOFTGPU_DEVICES=3 ${ring_only} --has "\"protocol\":\"pull\"" --hasnt "\"protocol\":\"put\"" --want "pushed == 0"
  -- ${churn} 3 20 stable)

# ---- SLIPRING_ZERO_COPY ----
foreach(protocol pull put)
  zero(off_${protocol} 120 --set SLIPRING_ZERO_COPY=off --set SLIPRING_PROTOCOL=${protocol} ${ring_only}
    --want "zero_copy + pushed + mapped == 0 && staged == 6 * 60" -- ${churn} 3 60)
  zero(off_one_${protocol} 120 --set ZERO_SET_0=SLIPRING_ZERO_COPY=off --set SLIPRING_PROTOCOL=${protocol} ${ring_only}
    --want "zero_copy_0 == 0 && zero_copy_1 > 0 && zero_copy_2 > 0 && mapped_0 > 0" -- ${churn} 3 120)
endforeach()

# ---- memory that another process may write to ----
# Copies within a device take long there, also that of a shard that moves.
set(given ${pull} --set SLIPRING_MIN_BYTES=16K --set SLIPRING_FLOP_PER_BYTE=0 --set SOFTGPU_HBM_GBS=0.05 -- $<TARGET_FILE:zero_given>)
foreach(gemm over apart)
  zero(given_${gemm} 120 ${given} ${gemm})
  set_property(TEST zero_given_${gemm} APPEND PROPERTY ENVIRONMENT TEST_RACE=strict)
endforeach()

# ---- memory that is allocated in the order of streams ----
# Nothing is staged once the first ten calls are over: where it matters how fast the peers map, with SLIPRING_LONG_TESTS.
set(ordered $<TARGET_FILE:zero_ordered>)
set(most 30)
if(SLIPRING_LONG_TESTS)
  set(most 0)
endif()
foreach(case steady pool passed elsewhere freed three in_place alike scatter)
  zero(ordered_${case}_pull 120 ${pull} ${ring_only} -- ${ordered} 2 ${case} 60 staged ${most})
  zero(ordered_${case}_put 120 ${put} ${ring_only} -- ${ordered} 3 ${case} 60 staged ${most})
endforeach()
# The host is far ahead of the stream that frees: few blocks are made, and what they do not serve is staged.
zero(ordered_ahead 120 ${pull} ${ring_only} --has "\"event\":\"blocks\".*\"misses\":[1-8]," -- ${ordered} 3 ahead 60)
zero(ordered_off 120 --set SLIPRING_ALLOC=off ${pull} ${ring_only} --always "zero_copy == 0" -- ${ordered} 2 steady 20)
foreach(case steady passed elsewhere alike)
  zero(ordered_${case}_race 120 ${pull} ${ring_only} -- ${ordered} 2 ${case} 40)
  set_property(TEST zero_ordered_${case}_race APPEND PROPERTY ENVIRONMENT TEST_RACE=strict)
endforeach()

# ---- buffers that are used again right behind the call ----
foreach(case overwrite-memset overwrite-h2d overwrite-d2d overwrite-host-waits next-gather read-old produce in-one-buffer)
  zero(late_${case}_pull 120 ${pull} ${ring_only} --want "zero_copy > 10" -- ${late} 3 ${case})
  zero(late_${case}_put 120 ${put} ${ring_only} --want "zero_copy > 10 && pushed > 10" -- ${late} 3 ${case})
endforeach()
# The same with 8 ms for each shard, and with many pieces.
set(slow --set SOFTGPU_TIMING=1 --set SOFTGPU_LINK_GBS=0.03)
foreach(protocol pull put)
  foreach(case overwrite-memset read-old in-one-buffer)
    zero(late_${case}_${protocol}_slow 120 --set SLIPRING_PROTOCOL=${protocol} ${slow} ${ring_only} -- ${late} 3 ${case})
    zero(late_${case}_${protocol}_chunks 120 --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_CHUNKS=5 ${ring_only} -- ${late} 4 ${case})
  endforeach()
endforeach()

# ---- where a peer's shard is expected ----
# Whoever comes first: in a steady program nothing is staged once the peers have mapped the buffers and seen them twice.
foreach(n 2 3)
  zero(expect_steady_${n} 120 ${pull} ${ring_only} --want "staged <= 40 * ${n} * (${n} - 1) && pushed == 0"
    -- ${expect} ${n} steady 150)
endforeach()
foreach(case moving behind freed)
  zero(expect_${case} 120 ${pull} ${ring_only} --want "zero_copy > 50" -- ${expect} 3 ${case} 90)
  zero(expect_${case}_chunks 120 ${pull} --set SLIPRING_CHUNKS=4 ${ring_only} -- ${expect} 2 ${case} 90)
endforeach()
zero(expect_corrected 120 ${pull} ${ring_only} --want "pushed > 5" -- ${expect} 2 moving 200)
# Buffers that were never used together before, which lie as far apart on all ranks as the ones before.
foreach(case walking in_place)
  zero(expect_${case} 120 ${pull} ${ring_only} --want "staged <= 40 * 3 * 2 && pushed == 0" --always "staged <= 360"
    -- ${expect} 3 ${case} 150) # 480 without
endforeach()
zero(expect_astray 120 ${pull} ${ring_only} --want "pushed > 5 && zero_copy > 50" -- ${expect} 3 astray 150)
set(fuse --set SLIPRING_FLOP_PER_BYTE=0 --set SLIPRING_CHUNKS=4)
zero(expect_gemm 120 ${pull} ${fuse} ${ring_only} --has "\"event\":\"fused\"" -- ${expect} 3 gemm 60)
# GEMMs that wait for whole shards get them whole from the 33rd of a row on.
set(shards ${pull} --set SLIPRING_CHUNKS=4 --set SLIPRING_TRIALS=0 ${ring_only} --has "\"event\":\"fused\"" -- $<TARGET_FILE:ag_gemm> --ranks 3
  --m 32 --n 96 --k 256 --dtype fp32 --iters 8 --check full --check-rounds 40 --burst 2 --poison)
zero(shards 120 ${shards})
zero(shards_event 120 ${shards} --side-stream)
zero(expect_group 120 ${pull} ${ring_only} -- ${expect} 3 group 60)
zero(expect_slow 120 ${pull} ${slow} --set SLIPRING_CHUNKS=3 ${ring_only} -- ${expect} 3 behind 30)
zero(expect_one_queue 120 ${pull} --set CUDA_DEVICE_MAX_CONNECTIONS=1 ${ring_only} -- ${expect} 4 moving 60)

# ---- blocks that come and go ----
foreach(protocol pull put)
  # Blocks go back to the driver and others get their addresses, in some order on each rank.
  zero(turnover_${protocol} 200 --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC_BYTES=0 ${ring_only} --want "zero_copy > 0" --
    ${blocks} 4 turnover 60 3)
  zero(turnover_slow_open_${protocol} 200 --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC_BYTES=0
    --set ZERO_SET_1=SOFTGPU_FAIL=cuIpcOpenMemHandle:3+=sleep150 ${ring_only} -- ${blocks} 3 turnover 40)
  # Much less memory than peers could have mapped: offers are revoked, and the program never sees that memory is short.
  zero(turnover_pressure_${protocol} 200 --set SLIPRING_PROTOCOL=${protocol} --set SOFTGPU_MEM_BYTES=8388608 ${ring_only} --want "zero_copy > 0"
    -- ${blocks} 3 turnover 40)
  zero(deep_${protocol} 200 --set SLIPRING_PROTOCOL=${protocol} ${ring_only} --want "zero_copy > 0" -- ${blocks} 3 deep 12)
  zero(settle_${protocol} 120 --set SLIPRING_PROTOCOL=${protocol} ${ring_only} --always "mapped_0 >= 32" --always "mapped_0 < 90" -- ${blocks} 2 settle 40)
  foreach(keep 4G 0)
    zero(free_in_flight_${protocol}_${keep} 120 --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC_BYTES=${keep} ${ring_only}
      -- ${blocks} 3 free-in-flight 24)
    zero(vanish_${protocol}_${keep} 120 --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC_BYTES=${keep} ${ring_only}
      -- ${blocks} 3 vanish 24)
    zero(leak_${protocol}_${keep} 120 --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC_BYTES=${keep} ${ring_only}
      -- ${blocks} 3 leak 6)
  endforeach()
  zero(free_in_flight_${protocol}_slow 120 --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC_BYTES=0 ${slow} ${ring_only}
    -- ${blocks} 3 free-in-flight 24)
  zero(many_comms_${protocol} 120 --set SLIPRING_PROTOCOL=${protocol} ${ring_only} --want "zero_copy > 0" -- ${blocks} 3 many-comms 24)
  # Many more calls of one rank than of its peers, in one thread and in several.
  foreach(calls 10 300 1000)
    zero(group_${protocol}_${calls} 120 --set SLIPRING_PROTOCOL=${protocol} ${ring_only} -- ${blocks} 3 group ${calls})
  endforeach()
  zero(ahead_${protocol} 120 --set SLIPRING_PROTOCOL=${protocol} ${ring_only} -- ${blocks} 3 ahead 1100)
endforeach()

# ---- a peer that dies, with blocks being mapped and closed ----
# The survivors ask for errors only between calls, and have no watchdog: in a full queue behind a dead peer nobody could tell them.
foreach(ms 900 1030 1410 1700)
  run(zero_die_${ms} 60 ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC_MIN=4K --has "communicator_failed" -- ${blocks} 3 die ${ms})
endforeach()

# ---- faults of the driver ----
foreach(case "cuMemAlloc_v2 5 9" "cuIpcGetMemHandle 1 4" "cuIpcOpenMemHandle_v2 1 5" "cuIpcCloseMemHandle 1 3" "cuPointerGetAttribute 1 4")
  separate_arguments(case)
  list(GET case 0 function)
  set(protocols put)
  if(SLIPRING_LONG_TESTS)
    set(protocols pull put)
  endif()
  foreach(protocol ${protocols})
    run(zero_fault_${function}_${protocol} 300 ${CMAKE_CURRENT_SOURCE_DIR}/zero_faults.sh ${case} 1 -- ${counts} --set SLIPRING_MIN_BYTES=0
      --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_SLOT_BYTES=256K --set SLIPRING_PROTOCOL=${protocol} -- ${churn} 2 12)
  endforeach()
endforeach()

# ---- mutants ----
run(zero_mutant_no_reader_wait 300 MUTANT zero_no_reader_wait ${zero} ${pull} -- ${late} 2 overwrite-memset)
run(zero_mutant_no_free_wait 300 MUTANT zero_no_free_wait ${zero} ${put} -- ${late} 2 read-old ENV SOFTGPU_HANG_SECONDS=5 SOFTGPU_HANG=abort)
run(zero_mutant_reader_ignores 300 MUTANT zero_reader_ignores ${zero} ${pull} -- ${late} 2 next-gather)
# A peer has to come late just when the block goes: one try in ten, now and then.
run(zero_mutant_free_pinned 300 MUTANT zero_free_pinned ${zero} ${pull} --set SLIPRING_ALLOC_BYTES=0 -- ${blocks} 4 vanish 24 ENV MUTANT_TRIES=60)
foreach(mutant pool_unmet pool_recv_unmet)
  run(zero_mutant_${mutant} 120 WITH ${mutant} ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_SLOT_BYTES=256K ${pull}
    --status 1 -- ${ordered} 3 steady 60 staged 30)
endforeach()
run(zero_mutant_given_forgotten 300 MUTANT zero_given_forgotten ${zero} ${given} over)
run(zero_mutant_shards_event 300 MUTANT zero_shards_event ${zero} ${shards})
run(zero_mutant_expect_unsettled 300 MUTANT zero_expect_unsettled ${zero} ${pull} ${slow} -- ${expect} 2 moving 100)
run(zero_mutant_expect_parts 300 MUTANT zero_expect_parts ${zero} ${pull} ${fuse} -- ${expect} 2 gemm 200)
run(zero_mutant_expect_overtaken 300 MUTANT zero_expect_overtaken ${zero} ${pull} -- ${expect} 2 group 200 ENV SOFTGPU_HANG_SECONDS=5
  SOFTGPU_HANG=abort)
run(zero_mutant_expect_early 300 MUTANT zero_expect_early ${zero} ${pull} -- ${expect} 2 moving 200)
run(zero_mutant_expect_believed 300 MUTANT zero_expect_believed ${zero} ${pull} -- ${expect} 2 moving 200)
if(SLIPRING_LONG_TESTS)
  run(zero_mutant_owner_ignores 300 MUTANT zero_owner_ignores ${zero} ${put} -- ${late} 2 next-gather)
  run(zero_mutant_not_passed 300 MUTANT zero_not_passed ${zero} ${pull} -- ${blocks} 2 group 300)
  run(zero_mutant_unpin_early 300 MUTANT zero_unpin_early ${zero} ${pull} --set SLIPRING_ALLOC_BYTES=0 -- ${blocks} 3 turnover 80)
else()
  set_property(GLOBAL APPEND PROPERTY mutants_used zero_owner_ignores zero_not_passed zero_unpin_early)
endif()

# ---- without slipring: the programs are right about CUDA and NCCL themselves ----
zero(plain_ordered 120 --plain -- ${ordered} 3 scatter 20)
zero(plain_churn 120 --plain -- ${churn} 3 60)
zero(plain_late 120 --plain -- ${late} 3 overwrite-memset)
zero(plain_expect 120 --plain -- ${expect} 3 freed 20)
foreach(case "turnover 20" "deep 3" "free-in-flight 12" "vanish 12" "many-comms 8" "leak 4" "group 300" "ahead 400")
  separate_arguments(case)
  list(GET case 0 name)
  zero(plain_${name} 120 --plain -- ${blocks} 3 ${case})
endforeach()
