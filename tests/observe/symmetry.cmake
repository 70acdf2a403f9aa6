# SPDX-License-Identifier: Apache-2.0
# What `slipring report` says of call sites: whole programs on the software GPU, each symmetric but for one thing.
# All conditions are exact: the log lists the same calls whenever it is written.
if(NOT TARGET slipring-report)
  return()
endif()
set(run ${CMAKE_CURRENT_SOURCE_DIR}/symmetry_run.sh)
set(symmetry_env "SOFTGPU_DIR=${SOFTGPU_DIR};TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST}")

add_executable(symmetry_sites symmetry_sites.c)
target_link_libraries(symmetry_sites PRIVATE zero_common softgpu_cudart softgpu_cublas softgpu_nccl pthread)
target_link_options(symmetry_sites PRIVATE -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs)
set_target_properties(symmetry_sites PROPERTIES SKIP_BUILD_RPATH ON)
set(sites $<TARGET_FILE:symmetry_sites>)

# symmetry(NAME run.sh-arguments...)
function(symmetry name)
  add_test(NAME symmetry_${name} COMMAND ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_SLOT_BYTES=64K ${ARGN})
  set_tests_properties(symmetry_${name} PROPERTIES TIMEOUT 120 LABELS symmetry
    ENVIRONMENT "${symmetry_env};SLIPRING_LIB=$<TARGET_FILE:slipring>;REPORT_TOOL=$<TARGET_FILE:slipring-report>")
endfunction()

# Site 0 has its buffers in the blocks of ordinals 0 and 1, and so on.
set(site_0 --line "1 buffer: site == 0 and buffer == 'recv' and (state, since, ordinal, offset, moves) == ('symmetric', 1, 0, 0, 0)")
set(site_1 --line "1 buffer: site == 1 and buffer == 'recv' and (state, since, ordinal, offset, moves) == ('symmetric', 2, 2, 0, 0)")
set(site_2 --line "1 buffer: site == 2 and buffer == 'recv' and (state, since, ordinal, offset, moves) == ('symmetric', 3, 4, 0, 0)")
# end(VARIABLE SITES SYMMETRIC BREAKS [CALLS]): what is said of the communicator.
function(end variable count symmetric breaks)
  set(calls 120)
  if(ARGN)
    set(calls ${ARGN})
  endif()
  set(${variable} --line "1 comm: (calls, silent, sites, symmetric, breaks) == (${calls}, 0, ${count}, ${symmetric}, ${breaks})"
    --line "0 rank: unlisted_places > 0 or more > 0" PARENT_SCOPE)
endfunction()

end(all 3 3 0)
foreach(n 2 4)
  symmetry(steady_${n} ${site_0} ${site_1} ${site_2} --line "6 buffer: state == 'symmetric' and calls == 40" --line "6 buffer: True" ${all}
    --line "1 phase: (phase, first, period, by) == (1, 1, 3, 'places')" --line "${n} rank: (listed, calls, places) == (120, 120, 3)" -- ${sites} ${n} 40 steady)
endforeach()
symmetry(exit --set SITES_NO_DESTROY=1 ${site_0} ${site_1} ${site_2} --line "6 buffer: True" ${all} -- ${sites} 2 40 steady)
symmetry(put --set SLIPRING_PROTOCOL=put ${site_0} ${site_1} ${site_2} --line "6 buffer: True" ${all} -- ${sites} 2 40 steady)
# Nine calls are too few to be taken for a period before the end, and are then.
end(short 3 3 0 9)
symmetry(short --line "6 buffer: state == 'symmetric'" ${short} -- ${sites} 2 3 steady)
symmetry(cycle --line "6 buffer: state == 'symmetric' and since <= 3" --line "6 buffer: True" ${all} -- ${sites} 2 40 cycle)
symmetry(in_place --line "3 buffer: buffer == 'both' and state == 'symmetric' and since == site + 1 and offset == 0" --line "3 buffer: True" ${all}
  -- ${sites} 4 40 in-place)

# The second rank's log is at warn, or missing: the others are compared, and it is said.
set(silent --line "1 comm: (nranks, silent, calls, sites, symmetric) == (3, 1, 120, 3, 3)" --line "6 buffer: state == 'symmetric' and calls == 40")
symmetry(quiet --set ZERO_SET_1=SLIPRING_LOG=warn ${silent} -- ${sites} 3 40 steady)
symmetry(missing --without 1 ${silent} --line "2 rank: listed == 120" -- ${sites} 3 40 steady)

# One rank is not like the others.
end(but_one 3 2 0)
symmetry(ordinal ${site_0} ${site_1} --line "6 buffer: True" ${but_one} --line "1 buffer: site == 2 and buffer == 'recv' and \
(state, since, odd_rank, odd_ranks, what, value, expected, like_rank) == ('differs', 3, 2, 1, 'ordinal', 5, 4, 0)" -- ${sites} 3 40 extra)
symmetry(offset ${site_0} ${site_2} --line "6 buffer: True" ${but_one} --line "1 buffer: site == 1 and buffer == 'recv' and \
(state, since, odd_rank, odd_ranks, what, value, expected, like_rank) == ('differs', 2, 1, 1, 'offset', 256, 0, 0)" -- ${sites} 2 40 offset)
symmetry(size ${site_1} ${site_2} --line "6 buffer: True" ${but_one} --line "1 buffer: site == 0 and buffer == 'recv' and \
(state, since, odd_rank, odd_ranks, what, like_rank) == ('differs', 1, 1, 1, 'size', 0) and value > expected" -- ${sites} 2 40 larger)
# One rank's memory is unknown: its addresses still show the period.
end(none 3 0 0)
symmetry(alloc_off_one --set ZERO_SET_1=SLIPRING_ALLOC=off --line "6 buffer: True" ${none} --line "6 buffer: \
(state, since, odd_rank, odd_ranks, what) == ('differs', site + 1, 1, 1, 'unknown_memory')" -- ${sites} 3 40 steady)
symmetry(alloc_off --set SLIPRING_ALLOC=off --line "6 buffer: True" ${none} --line "6 buffer: \
(state, odd_rank, odd_ranks, what) == ('differs', 0, 3, 'unknown_memory')" --line "1 phase: (period, by) == (3, 'places')" -- ${sites} 3 40 alike)

# Ranks move.
end(broke_send 3 3 1)
symmetry(again ${site_0} ${site_1} ${site_2} --line "5 buffer: state == 'symmetric'" ${broke_send} --line "1 buffer: site == 1 and buffer == 'send' and \
(state, since, breaks, moves, odd_rank, odd_ranks, what, value, expected) == ('moves', 119, 1, 30, 2, 1, 'ordinal', 39, 38)" -- ${sites} 3 40 again 10)
end(broke_recv 3 2 1)
symmetry(once ${site_0} ${site_2} --line "5 buffer: state == 'symmetric'" ${broke_recv} --line "1 buffer: site == 1 and buffer == 'recv' and \
(state, since, moves, odd_rank, what, value, expected, like_rank) == ('differs', 32, 1, 1, 'ordinal', 10, 2, 0)" -- ${sites} 2 40 once 10)
end(moved 3 3 1)
symmetry(together ${site_1} ${site_2} --line "6 buffer: state == 'symmetric'" ${moved} --line "1 buffer: site == 0 and buffer == 'recv' and \
(since, moves, breaks, ordinal) == (31, 1, 1, 10)" -- ${sites} 3 40 together 10)
end(flapped 3 2 10)
symmetry(flap ${site_1} ${site_2} --line "5 buffer: state == 'symmetric'" ${flapped}
  --line "1 buffer: site == 0 and buffer == 'recv' and (state, since, breaks, moves) == ('differs', 115, 10, 19)" -- ${sites} 2 40 flap)
end(seventy 70 70 0 350)
symmetry(many --line "70 buffer: buffer == 'recv' and state == 'symmetric' and (since, offset) == (site + 1, site * 1024)" --line "140 buffer: True"
  ${seventy} -- ${sites} 2 5 many)

# The log is bounded: a window of calls at each power of two, and the end. What was elsewhere between them is told by its place's first call.
symmetry(bounded ${site_0} ${site_1} ${site_2} --line "1 comm: (calls, sites, symmetric, breaks) == (2559, 3, 3, 0)"
  --line "1 phase: (first, period) == (1, 3)" --line "1 rank: (rank, listed, calls, places, unlisted_places) == (0, 2559, 6003, 3, 0)"
  --line "1 rank: (rank, listed, calls, places, unlisted_places, first_unlisted) == (1, 2559, 6003, 4, 1, 1502)"
  --most "280 places" --most "4 place" --line "1 places_end: calls == 6003 and places in (3, 4) and more == 0" -- ${sites} 2 2001 late 500)
# More places than have numbers: of those that follow it is known that they are others.
symmetry(more ${site_0} ${site_1} ${site_2} --line "1 buffer: site == 1 and buffer == 'send' and (state, what, odd_rank) == ('moves', 'many_places', 1)"
  --line "1 rank: (rank, more, places) == (1, 181, 513)" --line "1 rank: (rank, more, places) == (0, 0, 3)" --most "513 place" --most "200 places"
  -- ${sites} 2 700 again 10)

# Iterations and phases.
end(eight 8 8 0 160)
symmetry(inner --line "1 phase: (phase, first, period) == (1, 1, 8)" --line "16 buffer: state == 'symmetric' and since == site + 1"
  --line "14 buffer: shard == 8192" --line "2 buffer: shard == 12288" ${eight} -- ${sites} 2 20 inner)
end(second 2 2 0 100)
symmetry(phases --line "2 phase: (phase, first, period) in ((1, 1, 3), (2, 61, 2))" --line "6 buffer: phase == 1 and shard <= 12288"
  --line "4 buffer: phase == 2 and state == 'symmetric' and since == site + 61 and shard == (16384, 24576)[site]" --line "10 buffer: True"
  ${second} -- ${sites} 2 40 phases 20)
symmetry(two_communicators --line "1 comm: (calls, sites, symmetric) == (120, 3, 3)" --line "1 comm: (calls, sites, symmetric) == (40, 1, 1)"
  --line "2 comm: True" -- ${sites} 2 40 two)
# Reduce-scatters of the ring are numbered with the gathers, and are sites like them; those that NCCL has are neither.
if(SLIPRING_TEST_SCATTERS)
  end(mixed 4 4 0 160)
  foreach(n 2 3)
    symmetry(mixed_${n} --set SLIPRING_REDUCE_SCATTER=always --line "1 phase: (phase, first, period, by) == (1, 1, 4, 'places')"
      --line "4 buffer: op == 'allgather' and site in (0, 2) and calls == 40"
      --line "2 buffer: (op, site, shard, calls) == ('reducescatter', 1, 8192, 40)"
      --line "1 buffer: (op, site, buffer, offset, state) == ('reducescatter', 3, 'both', 0, 'symmetric')"
      --line "7 buffer: state == 'symmetric' and since == site + 1" ${mixed} -- ${sites} ${n} 40 mixed)
  endforeach()
endif()
end(passed 2 2 0 80)
symmetry(mixed_passed --set SLIPRING_REDUCE_SCATTER=off --line "1 phase: (phase, first, period, by) == (1, 1, 2, 'places')"
  --line "4 buffer: op == 'allgather'" ${passed} -- ${sites} 2 40 mixed)
# One rank is far ahead; more than a stream's queue holds. Nothing is lost by that.
end(far 3 3 0 600)
symmetry(ahead --set SOFTGPU_QUEUE=0 ${far} -- ${sites} 2 200 ahead)
# A process that is gone at once leaves the last sixteenth of its calls untold, at most.
symmetry(die ${site_0} ${site_1} ${site_2} --line "1 comm: 56 <= calls <= 60 and (sites, symmetric, breaks) == (3, 3, 0)"
  --line "1 rank: rank == 2 and listed <= 60 and calls == 0" -- ${sites} 3 40 die 20)

if(NOT SLIPRING_SANITIZE)
  add_test(NAME symmetry_cost COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/symmetry_cost.sh $<TARGET_FILE:slipring> ${SOFTGPU_DIR} 110 $<TARGET_FILE:zero_blocks> 2 group)
  set_tests_properties(symmetry_cost PROPERTIES TIMEOUT 120 LABELS symmetry SKIP_RETURN_CODE 77)
endif()
