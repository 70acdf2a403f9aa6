# SPDX-License-Identifier: Apache-2.0
# What `slipring report` says of call sites: whole programs on the software GPU, each symmetric but for one thing.
# All conditions are exact: the log lists the same calls whenever it is written.
if(NOT TARGET slipring-report)
  return()
endif()

program(symmetry_sites symmetry_sites.c LIBS zero forms ranks cudart cublas nccl)
set(sites $<TARGET_FILE:symmetry_sites>)
set(symmetry ${CMAKE_CURRENT_SOURCE_DIR}/symmetry_run.sh --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_SLOT_BYTES=64K)
set(symmetry_env REPORT_TOOL=$<TARGET_FILE:slipring-report>)
set(listed --line "0 rank: unlisted_places > 0 or more > 0")

# Site 0 has its buffers in the blocks of ordinals 0 and 1, and so on.
set(site_0 --line "1 buffer: site == 0 and buffer == 'recv' and (state, since, ordinal, offset, moves) == ('symmetric', 1, 0, 0, 0)")
set(site_1 --line "1 buffer: site == 1 and buffer == 'recv' and (state, since, ordinal, offset, moves) == ('symmetric', 2, 2, 0, 0)")
set(site_2 --line "1 buffer: site == 2 and buffer == 'recv' and (state, since, ordinal, offset, moves) == ('symmetric', 3, 4, 0, 0)")

set(all --line "1 comm: (calls, silent, sites, symmetric, breaks) == (120, 0, 3, 3, 0)" ${listed})
foreach(n 2 4)
  run(symmetry_steady_${n} 120 ${symmetry} ${site_0} ${site_1} ${site_2} --line "6 buffer: state == 'symmetric' and calls == 40" --line "6 buffer: True" ${all}
    --line "1 phase: (phase, first, period, by) == (1, 1, 3, 'places')" --line "${n} rank: (listed, calls, places) == (120, 120, 3)" -- ${sites} ${n} 40 steady ENV ${symmetry_env})
endforeach()
run(symmetry_exit 120 ${symmetry} --set SITES_NO_DESTROY=1 ${site_0} ${site_1} ${site_2} --line "6 buffer: True" ${all} -- ${sites} 2 40 steady ENV ${symmetry_env})
run(symmetry_put 120 ${symmetry} --set SLIPRING_PROTOCOL=put ${site_0} ${site_1} ${site_2} --line "6 buffer: True" ${all} -- ${sites} 2 40 steady ENV ${symmetry_env})
# Nine calls are too few to be taken for a period before the end, and are then.
set(short --line "1 comm: (calls, silent, sites, symmetric, breaks) == (9, 0, 3, 3, 0)" ${listed})
run(symmetry_short 120 ${symmetry} --line "6 buffer: state == 'symmetric'" ${short} -- ${sites} 2 3 steady ENV ${symmetry_env})
run(symmetry_cycle 120 ${symmetry} --line "6 buffer: state == 'symmetric' and since <= 3" --line "6 buffer: True" ${all} -- ${sites} 2 40 cycle ENV ${symmetry_env})
run(symmetry_in_place 120 ${symmetry} --line "3 buffer: buffer == 'both' and state == 'symmetric' and since == site + 1 and offset == 0" --line "3 buffer: True" ${all}
  -- ${sites} 4 40 in-place ENV ${symmetry_env})

# The second rank's log is at warn, or missing: the others are compared, and it is said.
set(silent --line "1 comm: (nranks, silent, calls, sites, symmetric) == (3, 1, 120, 3, 3)" --line "6 buffer: state == 'symmetric' and calls == 40")
run(symmetry_quiet 120 ${symmetry} --set ZERO_SET_1=SLIPRING_LOG=warn ${silent} -- ${sites} 3 40 steady ENV ${symmetry_env})
run(symmetry_missing 120 ${symmetry} --without 1 ${silent} --line "2 rank: listed == 120" -- ${sites} 3 40 steady ENV ${symmetry_env})

# One rank is not like the others.
set(but_one --line "1 comm: (calls, silent, sites, symmetric, breaks) == (120, 0, 3, 2, 0)" ${listed})
run(symmetry_ordinal 120 ${symmetry} ${site_0} ${site_1} --line "6 buffer: True" ${but_one} --line "1 buffer: site == 2 and buffer == 'recv' and \
(state, since, odd_rank, odd_ranks, what, value, expected, like_rank) == ('differs', 3, 2, 1, 'ordinal', 5, 4, 0)" -- ${sites} 3 40 extra ENV ${symmetry_env})
run(symmetry_offset 120 ${symmetry} ${site_0} ${site_2} --line "6 buffer: True" ${but_one} --line "1 buffer: site == 1 and buffer == 'recv' and \
(state, since, odd_rank, odd_ranks, what, value, expected, like_rank) == ('differs', 2, 1, 1, 'offset', 256, 0, 0)" -- ${sites} 2 40 offset ENV ${symmetry_env})
run(symmetry_size 120 ${symmetry} ${site_1} ${site_2} --line "6 buffer: True" ${but_one} --line "1 buffer: site == 0 and buffer == 'recv' and \
(state, since, odd_rank, odd_ranks, what, like_rank) == ('differs', 1, 1, 1, 'size', 0) and value > expected" -- ${sites} 2 40 larger ENV ${symmetry_env})
# One rank's memory is unknown: its addresses still show the period.
set(none --line "1 comm: (calls, silent, sites, symmetric, breaks) == (120, 0, 3, 0, 0)" ${listed})
run(symmetry_alloc_off_one 120 ${symmetry} --set ZERO_SET_1=SLIPRING_ALLOC=off --line "6 buffer: True" ${none} --line "6 buffer: \
(state, since, odd_rank, odd_ranks, what) == ('differs', site + 1, 1, 1, 'unknown_memory')" -- ${sites} 3 40 steady ENV ${symmetry_env})
run(symmetry_alloc_off 120 ${symmetry} --set SLIPRING_ALLOC=off --line "6 buffer: True" ${none} --line "6 buffer: \
(state, odd_rank, odd_ranks, what) == ('differs', 0, 3, 'unknown_memory')" --line "1 phase: (period, by) == (3, 'places')" -- ${sites} 3 40 alike ENV ${symmetry_env})

# Ranks move.
set(broke_send --line "1 comm: (calls, silent, sites, symmetric, breaks) == (120, 0, 3, 3, 1)" ${listed})
run(symmetry_again 120 ${symmetry} ${site_0} ${site_1} ${site_2} --line "5 buffer: state == 'symmetric'" ${broke_send} --line "1 buffer: site == 1 and buffer == 'send' and \
(state, since, breaks, moves, odd_rank, odd_ranks, what, value, expected) == ('moves', 119, 1, 30, 2, 1, 'ordinal', 39, 38)" -- ${sites} 3 40 again 10 ENV ${symmetry_env})
set(broke_recv --line "1 comm: (calls, silent, sites, symmetric, breaks) == (120, 0, 3, 2, 1)" ${listed})
run(symmetry_once 120 ${symmetry} ${site_0} ${site_2} --line "5 buffer: state == 'symmetric'" ${broke_recv} --line "1 buffer: site == 1 and buffer == 'recv' and \
(state, since, moves, odd_rank, what, value, expected, like_rank) == ('differs', 32, 1, 1, 'ordinal', 10, 2, 0)" -- ${sites} 2 40 once 10 ENV ${symmetry_env})
set(moved --line "1 comm: (calls, silent, sites, symmetric, breaks) == (120, 0, 3, 3, 1)" ${listed})
run(symmetry_together 120 ${symmetry} ${site_1} ${site_2} --line "6 buffer: state == 'symmetric'" ${moved} --line "1 buffer: site == 0 and buffer == 'recv' and \
(since, moves, breaks, ordinal) == (31, 1, 1, 10)" -- ${sites} 3 40 together 10 ENV ${symmetry_env})
set(flapped --line "1 comm: (calls, silent, sites, symmetric, breaks) == (120, 0, 3, 2, 10)" ${listed})
run(symmetry_flap 120 ${symmetry} ${site_1} ${site_2} --line "5 buffer: state == 'symmetric'" ${flapped}
  --line "1 buffer: site == 0 and buffer == 'recv' and (state, since, breaks, moves) == ('differs', 115, 10, 19)" -- ${sites} 2 40 flap ENV ${symmetry_env})
set(seventy --line "1 comm: (calls, silent, sites, symmetric, breaks) == (350, 0, 70, 70, 0)" ${listed})
run(symmetry_many 120 ${symmetry} --line "70 buffer: buffer == 'recv' and state == 'symmetric' and (since, offset) == (site + 1, site * 1024)" --line "140 buffer: True"
  ${seventy} -- ${sites} 2 5 many ENV ${symmetry_env})

# The log is bounded: a window of calls at each power of two, and the end. What was elsewhere between them is told by its place's first call.
run(symmetry_bounded 120 ${symmetry} ${site_0} ${site_1} ${site_2} --line "1 comm: (calls, sites, symmetric, breaks) == (2559, 3, 3, 0)"
  --line "1 phase: (first, period) == (1, 3)" --line "1 rank: (rank, listed, calls, places, unlisted_places) == (0, 2559, 6003, 3, 0)"
  --line "1 rank: (rank, listed, calls, places, unlisted_places, first_unlisted) == (1, 2559, 6003, 4, 1, 1502)"
  --most "280 places" --most "4 place" --line "1 places_end: calls == 6003 and places in (3, 4) and more == 0" -- ${sites} 2 2001 late 500 ENV ${symmetry_env})
# More places than have numbers: of those that follow it is known that they are others.
run(symmetry_more 120 ${symmetry} ${site_0} ${site_1} ${site_2} --line "1 buffer: site == 1 and buffer == 'send' and (state, what, odd_rank) == ('moves', 'many_places', 1)"
  --line "1 rank: (rank, more, places) == (1, 181, 513)" --line "1 rank: (rank, more, places) == (0, 0, 3)" --most "513 place" --most "200 places"
  -- ${sites} 2 700 again 10 ENV ${symmetry_env})

# Iterations and phases.
set(eight --line "1 comm: (calls, silent, sites, symmetric, breaks) == (160, 0, 8, 8, 0)" ${listed})
run(symmetry_inner 120 ${symmetry} --line "1 phase: (phase, first, period) == (1, 1, 8)" --line "16 buffer: state == 'symmetric' and since == site + 1"
  --line "14 buffer: shard == 8192" --line "2 buffer: shard == 12288" ${eight} -- ${sites} 2 20 inner ENV ${symmetry_env})
set(second --line "1 comm: (calls, silent, sites, symmetric, breaks) == (100, 0, 2, 2, 0)" ${listed})
run(symmetry_phases 120 ${symmetry} --line "2 phase: (phase, first, period) in ((1, 1, 3), (2, 61, 2))" --line "6 buffer: phase == 1 and shard <= 12288"
  --line "4 buffer: phase == 2 and state == 'symmetric' and since == site + 61 and shard == (16384, 24576)[site]" --line "10 buffer: True"
  ${second} -- ${sites} 2 40 phases 20 ENV ${symmetry_env})
run(symmetry_two_communicators 120 ${symmetry} --line "1 comm: (calls, sites, symmetric) == (120, 3, 3)" --line "1 comm: (calls, sites, symmetric) == (40, 1, 1)"
  --line "2 comm: True" -- ${sites} 2 40 two ENV ${symmetry_env})
# Reduce-scatters of the ring are numbered with the gathers, and are sites like them; those that NCCL has are neither.
set(mixed --line "1 comm: (calls, silent, sites, symmetric, breaks) == (160, 0, 4, 4, 0)" ${listed})
foreach(n 2 3)
  run(symmetry_mixed_${n} 120 ${symmetry} --set SLIPRING_REDUCE_SCATTER=always --line "1 phase: (phase, first, period, by) == (1, 1, 4, 'places')"
    --line "4 buffer: op == 'allgather' and site in (0, 2) and calls == 40"
    --line "2 buffer: (op, site, shard, calls) == ('reducescatter', 1, 8192, 40)"
    --line "1 buffer: (op, site, buffer, offset, state) == ('reducescatter', 3, 'both', 0, 'symmetric')"
    --line "7 buffer: state == 'symmetric' and since == site + 1" ${mixed} -- ${sites} ${n} 40 mixed ENV ${symmetry_env})
endforeach()
foreach(n 2 3)
  run(symmetry_reduced_${n} 120 ${symmetry} --set SLIPRING_ALL_REDUCE=always --line "1 phase: (phase, first, period, by) == (1, 1, 2, 'places')"
    --line "1 buffer: (op, site, buffer, offset, state) == ('allreduce', 1, 'both', 0, 'symmetric')" --line "3 buffer: state == 'symmetric'"
    --line "1 comm: (calls, silent, sites, symmetric, breaks) == (80, 0, 2, 2, 0)" ${listed} -- ${sites} ${n} 40 reduced ENV ${symmetry_env})
endforeach()
set(passed --line "1 comm: (calls, silent, sites, symmetric, breaks) == (80, 0, 2, 2, 0)" ${listed})
run(symmetry_mixed_passed 120 ${symmetry} --set SLIPRING_REDUCE_SCATTER=off --line "1 phase: (phase, first, period, by) == (1, 1, 2, 'places')"
  --line "4 buffer: op == 'allgather'" ${passed} -- ${sites} 2 40 mixed ENV ${symmetry_env})
# One rank is far ahead; more than a stream's queue holds. Nothing is lost by that.
set(far --line "1 comm: (calls, silent, sites, symmetric, breaks) == (600, 0, 3, 3, 0)" ${listed})
run(symmetry_ahead 120 ${symmetry} --set SOFTGPU_QUEUE=0 ${far} -- ${sites} 2 200 ahead ENV ${symmetry_env})
# A process that is gone at once leaves the last sixteenth of its calls untold, at most.
run(symmetry_die 120 ${symmetry} ${site_0} ${site_1} ${site_2} --line "1 comm: 56 <= calls <= 60 and (sites, symmetric, breaks) == (3, 3, 0)"
  --line "1 rank: rank == 2 and listed <= 60 and calls == 0" -- ${sites} 3 40 die 20 ENV ${symmetry_env})

if(NOT SLIPRING_SANITIZE)
  add_test(NAME symmetry_cost COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/symmetry_cost.sh $<TARGET_FILE:slipring> ${SOFTGPU_DIR} 110 $<TARGET_FILE:zero_blocks> 2 group)
  set_tests_properties(symmetry_cost PROPERTIES TIMEOUT 120 LABELS symmetry SKIP_RETURN_CODE 77)
endif()
