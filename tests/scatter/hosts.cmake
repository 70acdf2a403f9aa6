# SPDX-License-Identifier: Apache-2.0
# Reduce-scatters and all-reduces of communicators that span hosts (SLIPRING_HOSTS): the same programs, this machine taken for several hosts.
# Left out: what is exact only where sums are rounded once, or fits half precision only then.
set(hosts_sums ${run_sh} --set SLIPRING_HOSTS=on ${always_all} ${bad} --has "\"decision\":\"hosts\"")
set(hosts_two ${hosts_sums} --set TEST_HOSTS=2 --has "\"event\":\"(scatter|reduce)_count\",\"reason\":\"hosts\"")
set(hosts_race ENV TEST_RACE=strict)
if(SLIPRING_SANITIZE)
  set(hosts_race)
endif()
string(REPLACE ";" "," hosts_forms "${some_forms}")
string(REPLACE "rounds-once-avg," "" hosts_forms ${hosts_forms})
set(hosts_plain sizes,megabytes,empty)
set(hosts_small sizes,empty)
set(hosts_uneven uneven,)
if(SLIPRING_SANITIZE) # for which all sizes take long
  set(hosts_plain empty,megabytes)
  set(hosts_small empty)
  set(hosts_uneven)
endif()
run(hosts_sums_forms 120 ${hosts_two} ${fused} EACH scatter ${hosts_forms} 4 ${hosts_race})
run(hosts_sums_plain 120 ${hosts_two} EACH scatter ${hosts_plain} 4 ${hosts_race})
run(hosts_sums_group 120 ${hosts_two} EACH scatter list-group 4 ${hosts_race})
if(NOT SLIPRING_SANITIZE) # whose order the race oracle judges
  run(hosts_sums_wrong 120 ${hosts_two} EACH scatter ${some_wrong} 4 ${hosts_race})
  run(hosts_sums_reuse 120 ${hosts_two} ${fused} EACH scatter list-reuse 4 ${hosts_race})
  run(hosts_sums_look 120 ${hosts_two} ${fused} EACH scatter list-look 4 ${hosts_race})
  run(hosts_sums_copy 120 ${hosts_two} EACH scatter copy-sent-always,copy-in-place-always,copy-gemm-between-always,copy-changed 4 ${hosts_race})
endif()
run(hosts_sums_meet 60 ${hosts_two} ${fused} ${slow_gemms} EACH scatter list-meet 4)
# Nothing of what is captured goes over hosts, and no GEMM is cut for it.
run(hosts_sums_graphs 60 ${hosts_sums} --set TEST_HOSTS=2 --hasnt "\"scatter_captured\"" EACH scatter graph-bf16,graph-reader,graph-recv-read 4)
set(hosts_rows "2 6 sizes,ex-bf16-nn" "2 8 sizes,side" "4 8 sizes,avg-fp16,unlike-any,sites")
if(SLIPRING_SANITIZE) # which takes long for all sizes, of many ranks
  set(hosts_rows "2 6 ex-bf16-nn,side")
endif()
foreach(row IN LISTS hosts_rows)
  separate_arguments(row)
  list(POP_FRONT row per n cases)
  run(hosts_sums_${n}_by_${per} 120 ${hosts_sums} --set TEST_HOSTS=${per} EACH scatter ${cases} ${n})
endforeach()
# All shards, one that fills two pieces, and where there is no room for the ring's slots.
run(hosts_sums_all 120 ${hosts_two} EACH scatter ${hosts_uneven}empty,in-place,avg-fp32 4a ${hosts_race})
run(hosts_sums_all_group 120 ${hosts_two} EACH scatter list-group 4a ${hosts_race})
run(hosts_sums_all_meet 60 ${hosts_two} ${slow_gemms} EACH scatter list-meet 4a)
if(NOT SLIPRING_SANITIZE)
  run(hosts_sums_all_8_by_4 120 ${hosts_sums} --set TEST_HOSTS=4 EACH scatter list-all-sizes 8a)
endif()
set(hosts_ways SLOT_BYTES=8K CACHE_BYTES=8K)
if(SLIPRING_SANITIZE)
  set(hosts_ways CACHE_BYTES=8K)
endif()
foreach(how IN LISTS hosts_ways)
  string(REGEX REPLACE "=.*" "" name ${how})
  string(TOLOWER ${name} name)
  run(hosts_sums_${name} 120 ${hosts_two} --set SLIPRING_${how} EACH scatter ${hosts_small},group-several,group-streams,group-comms 4 ${hosts_race})
  run(hosts_sums_all_${name} 120 ${hosts_two} --set SLIPRING_${how} EACH scatter ${hosts_uneven}group-several,group-streams,group-comms 4a ${hosts_race})
endforeach()
run(hosts_sums_later 120 LIB ${nonblocking} ${hosts_two} EACH scatter ex-bf16-nn,side-late,group-several,overwritten-always 4 ENV TEST_RACE=1)
run(hosts_sums_streams 120 LIB ${contexts} ${hosts_two} EACH scatter empty,ex-bf16-nn,overwritten-always 4 ENV TEST_CONTEXTS=streams TEST_RACE=1)
# The device has no memory for what goes to other hosts: the host has.
set(no_memory --set TEST_RANK_ENV=1:SOFTGPU_FAIL=cuMemAllocAsync:3 --has "\"event\":\"sums_in_host_memory\"") # behind those of two shadows
run(hosts_sums_no_memory 60 ${hosts_two} ${no_memory} EACH scatter ex-bf16-nn,empty 4)
# What settings and types leave to NCCL.
set(hosts_strict --set TEST_RANK_ENV=3:SLIPRING_STRICT=on --has "\"event\":\"reduce_count\",\"reason\":\"all_reduce_off\"" --hasnt "\"event\":\"reduce_count\",\"reason\":\"hosts\"")
run(hosts_sums_strict 60 ${hosts_sums} --set TEST_HOSTS=2 ${hosts_strict} EACH scatter in-place 4a)
run(hosts_sums_off 60 ${hosts_sums} --set TEST_HOSTS=2 --set SLIPRING_REDUCE_SCATTER=off --hasnt "\"op\":\"reducescatter\".*\"reason\":\"hosts\"" EACH scatter ex-bf16-nn 4)
run(hosts_sums_types 60 ${hosts_sums} --set TEST_HOSTS=2 --has "\"reason\":\"reduce_scatter_type\"" EACH scatter others 4)
# Tried: reduce-scatters, and whether gathers come in small pieces.
set(hosts_tries ${hosts_sums} --set TEST_HOSTS=2 --set SLIPRING_REDUCE_SCATTER=auto --set SLIPRING_TRIALS=2 --set SLIPRING_TRIALS_AFTER=2)
run(hosts_sums_tried 60 ${hosts_tries} --has "\"event\":\"duel_of\".*\"of\":\"reducescatter\"" --hasnt "\"event\":\"duel\"" --has "\"reason\":\"trial\""
  EACH scatter tried-gemms 4)
run(hosts_sums_untried 60 ${hosts_sums} --set TEST_HOSTS=2 --set SLIPRING_REDUCE_SCATTER=auto --has "\"reason\":\"reduce_scatter_untried\""
  --hasnt "\"event\":\"produced\"" EACH scatter ex-bf16-nn 4)

# ---- mutants ----
set(hosts_caught ${hosts_two} --set TEST_RACE=strict)
run(hosts_mutant_sum_early 120 MUTANT hosts_sum_early ${hosts_caught} EACH scatter sizes 4)
run(hosts_mutant_sum_reused 120 MUTANT hosts_sum_reused ${hosts_caught} EACH scatter sizes 4)
run(hosts_mutant_sum_not_awaited 120 MUTANT hosts_sum_not_awaited ${hosts_caught} EACH scatter sizes 4)
run(hosts_mutant_sum_own 120 MUTANT hosts_sum_own ${hosts_caught} EACH scatter sizes 4)
run(hosts_mutant_sum_met 120 MUTANT hosts_sum_unmade ${hosts_caught} ${slow_gemms} EACH scatter ex-bf16-nn 4)
run(hosts_mutant_sum_all_early 120 MUTANT hosts_sum_all_early ${hosts_caught} EACH scatter list-all-sizes 4a)
run(hosts_mutant_sum_all_late 120 MUTANT hosts_sum_all_late ${hosts_caught} EACH scatter list-all-sizes 4a)
run(hosts_mutant_sum_copies 120 MUTANT hosts_sum_copies ${hosts_caught} EACH scatter copy-sent-always 4)
run(hosts_mutant_sum_strict 120 WITH hosts_sum_strict ${caught_sh} "log line" ${hosts_sums} --set TEST_HOSTS=2 ${hosts_strict} -- $<TARGET_FILE:scatter> in-place 4a)
run(hosts_mutant_sum_captured 120 WITH hosts_sum_captured ${caught_sh} "a log line matches" ${hosts_sums} --set TEST_HOSTS=2 --hasnt "\"event\":\"produced\",.*\"parts\":1[0-9]"
  -- $<TARGET_FILE:scatter> graph-bf16 4)
