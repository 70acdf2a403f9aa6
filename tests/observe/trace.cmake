# SPDX-License-Identifier: Apache-2.0
# What SLIPRING_TRACE writes: whole programs on the software GPU, whose lines trace_check.py finds whole, in order, and of one clock; and mutants of the
# library whose lines it does not. All conditions are on order, not on durations.

program(trace_calls trace_calls.c LIBS zero forms ranks cudart cublas nccl)
set(calls $<TARGET_FILE:trace_calls>)
set(trace_sh ${CMAKE_CURRENT_SOURCE_DIR}/trace_run.sh) # trace_check.py-arguments... -- run.sh-arguments... -- PROGRAM...
set(trace SLIPRING_MIN_BYTES=0 SLIPRING_ALLOC_MIN=4K)
set(in_graph --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_GRAPHS=on --set SLIPRING_FLOP_PER_BYTE=0 --set SLIPRING_ALLOC_MIN=1
  --hasnt "replay_refused|communicator_failed")

# All ways of a shard, all sizes of pieces.
run(trace_matrix 120 ${trace_sh} --calls ring=54 -- --set SLIPRING_SLOT_BYTES=16K -- $<TARGET_FILE:gather_matrix> 3 5000 ENV ${trace})
foreach(n 2 4)
  run(trace_mixed_${n} 120 ${trace_sh} --calls ring=24 -- --set SLIPRING_SLOT_BYTES=16K -- ${calls} ${n} mixed 24 ENV ${trace})
endforeach()
foreach(protocol pull put)
  run(trace_churn_${protocol} 120 ${trace_sh} -- --set SLIPRING_SLOT_BYTES=256K --set SLIPRING_PROTOCOL=${protocol}
    -- $<TARGET_FILE:zero_churn> 3 40 stable ENV ${trace})
endforeach()
# Fused on the stream of the call and on another one; joined; groups; several communicators; ranks that are threads.
run(trace_fused 120 ${trace_sh} --ended fused -- --set SLIPRING_CHUNKS=5 -- $<TARGET_FILE:fuse> 4 bn ENV ${trace})
# With a slow memory, so that the staging takes its time.
set(fused_staged --ended fused -- --set SOFTGPU_TIMING=1 --set SOFTGPU_HBM_GBS=0.01 --set SLIPRING_ZERO_COPY=off -- $<TARGET_FILE:fuse> 2 bn ENV ${trace})
run(trace_fused_staged 120 ${trace_sh} ${fused_staged})
run(trace_fused_by_event 120 ${trace_sh} --ended fused -- -- $<TARGET_FILE:fuse> 3 other-stream ENV ${trace})
run(trace_fused_lt 120 ${trace_sh} --ended fused -- -- $<TARGET_FILE:fuse_lt> 2 bn-bias ENV ${trace})
run(trace_fused_moved 120 ${trace_sh} --ended fused --calls ring=3 -- --set SLIPRING_ALLOC_MIN=1 --set SLIPRING_PROTOCOL=pull
  --set SLIPRING_FLOP_PER_BYTE=0 --set SLIPRING_CHUNKS=5 -- $<TARGET_FILE:fuse> 3 c-in-send ENV ${trace})
run(trace_joined 120 ${trace_sh} --ended gemm_leading_dimension -- -- $<TARGET_FILE:fuse> 2 pad ENV ${trace})
foreach(case one-stream several-streams several-comms mixed nested)
  run(trace_group_${case} 120 ${trace_sh} --want "n('ring') > 0" -- -- $<TARGET_FILE:forms_groups> ${case} 3 ENV ${trace})
endforeach()
# Each gather of a group, behind which its own GEMM stands.
set(each_of_group --calls ring=9 --ended fused -- --set SLIPRING_FLOP_PER_BYTE=0 --set SLIPRING_CHUNKS=5 -- $<TARGET_FILE:forms_order> group-each 3)
run(trace_group_each 120 ${trace_sh} ${each_of_group} ENV ${trace})
run(trace_split 120 ${trace_sh} --calls ring=8 -- -- ${calls} 3 split ENV ${trace})
foreach(case init-all threads)
  run(trace_${case} 120 ${trace_sh} -- -- $<TARGET_FILE:forms_comms> ${case} 3 ENV ${trace})
endforeach()
# Gathers in graphs: each replay is measured, whatever the graph has been made into, by some ranks only, or fused.
run(trace_graph_clone_3 120 ${trace_sh} --calls ring=5 --calls graph=4 -- ${in_graph} -- $<TARGET_FILE:forms_graphs> clone 3 ENV ${trace})
run(trace_graph_child_2 120 ${trace_sh} --calls ring=9 --calls graph=8 -- ${in_graph} -- $<TARGET_FILE:forms_graphs> child 2 ENV ${trace})
run(trace_graph_update_3 120 ${trace_sh} --calls ring=24 -- ${in_graph} -- $<TARGET_FILE:forms_graphs> update 3 ENV ${trace})
run(trace_graph_several_2 120 ${trace_sh} --calls ring=33 --calls graph=28 -- ${in_graph} -- $<TARGET_FILE:forms_graphs> several 2 ENV ${trace})
run(trace_graph_mixed_3 120 ${trace_sh} --want "0 < n('graph') < n('ring') - 10" -- ${in_graph} -- $<TARGET_FILE:forms_graphs> mixed 3 ENV ${trace})
run(trace_graph_streams_2 120 ${trace_sh} --calls ring=25 --calls graph=12 -- ${in_graph} -- $<TARGET_FILE:forms_graphs> streams 2 ENV ${trace})
run(trace_graph_late_3 120 ${trace_sh} --calls ring=61 --calls graph=60 -- ${in_graph} -- $<TARGET_FILE:forms_graphs> late 3 ENV ${trace})
run(trace_graph_chain_3 120 ${trace_sh} --calls ring=9 --calls graph=8 -- ${in_graph} -- $<TARGET_FILE:forms_graphs> chain 3 ENV ${trace})
run(trace_graph_otherwise_3 120 ${trace_sh} --calls ring=9 --calls graph=8 -- ${in_graph} -- $<TARGET_FILE:forms_graphs> otherwise 3 ENV ${trace})
run(trace_graph_unmapped_3 120 ${trace_sh} --calls ring=29 --calls graph=24 -- ${in_graph} -- $<TARGET_FILE:forms_graphs> unmapped 3 ENV ${trace})
run(trace_graph_first_2 120 ${trace_sh} --calls ring=13 --calls graph=12 -- ${in_graph} -- $<TARGET_FILE:forms_graphs> first 2 ENV ${trace})
run(trace_graph_gemm-stream_3 120 ${trace_sh} --calls ring=9 --ended fused -- ${in_graph} -- $<TARGET_FILE:forms_graphs> gemm-stream 3 ENV ${trace})
run(trace_graph_gemm-event_2 120 ${trace_sh} --calls ring=9 --ended fused -- ${in_graph} -- $<TARGET_FILE:forms_graphs> gemm-event 2 ENV ${trace})
foreach(case uneven otherwise ahead)
  run(trace_graph_${case}_threads 120 ${trace_sh} --want "n('ring') > 8" -- ${in_graph} -- $<TARGET_FILE:forms_graphs> ${case} 3 threads ENV ${trace})
endforeach()
run(trace_graph_replays 120 ${trace_sh} --calls ring=113 --calls graph=100 -- ${in_graph} -- ${calls} 3 replays 50 ENV ${trace})
run(trace_graph_replays_some 120 ${trace_sh} --calls ring=17 -- ${in_graph} -- ${calls} 2 replays 50 ENV ${trace} SLIPRING_TRACE=7)
run(trace_graph_soak_some 120 ${trace_sh} --want "n('graph') > 10 and n('ring') > n('graph')" -- ${in_graph}
  -- $<TARGET_FILE:forms_graphs> soak-kept 2 processes 100 ENV ${trace} SLIPRING_TRACE=7)
run(trace_graph_soak_mixed 120 ${trace_sh} --want "0 < n('graph') < n('ring')" -- ${in_graph} -- $<TARGET_FILE:forms_graphs> soak-mixed 3 processes 60
  ENV ${trace})
run(trace_graph_in-flight 120 ${trace_sh} --not-all --want "written + unfinished == 10" -- ${in_graph} -- ${calls} 2 in-flight ENV ${trace})
# Reduce-scatters over the ring: behind the parts of a GEMM, on its stream or another one, behind a whole one, and alone; beside gathers.
set(scattered --set SLIPRING_REDUCE_SCATTER=always --set SLIPRING_SLOT_BYTES=64K --set SLIPRING_FLOP_PER_BYTE=0)
foreach(ranks 2 3)
  run(trace_scatter_fused_${ranks} 120 ${trace_sh} --want "0 < n('scatter-fused') < n('scatter') == lines + n('scatter')" -- ${scattered}
    --hasnt "communicator_failed" -- $<TARGET_FILE:scatter> ex-bf16-nn ${ranks} ENV ${trace})
  run(trace_scatter_side_${ranks} 120 ${trace_sh} --want "0 < n('scatter-fused') < n('scatter')" -- ${scattered} --hasnt "communicator_failed"
    -- $<TARGET_FILE:scatter> side ${ranks} ENV ${trace})
  run(trace_scatter_loop_${ranks} 120 ${trace_sh} --want "0 < n('scatter-fused') < n('scatter') and n('ring') > 100" -- ${scattered}
    --hasnt "communicator_failed" -- $<TARGET_FILE:scatter> loop ${ranks} ENV ${trace})
endforeach()
foreach(case ex-bf16-nn in-place side)
  run(trace_scatter_${case}_threads 120 ${trace_sh} --want "n('scatter') > 6" -- ${scattered} --hasnt "communicator_failed"
    -- $<TARGET_FILE:scatter> ${case} 3t ENV ${trace})
endforeach()
run(trace_scatter_overwritten 120 ${trace_sh} --want "n('scatter') > 4" -- ${scattered} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> overwritten-always 3 ENV ${trace})
run(trace_scatter_group 120 ${trace_sh} --want "n('scatter') > 0" -- ${scattered} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> group-mixed 3 ENV ${trace})
run(trace_scatter_plain 120 ${trace_sh} --want "n('scatter') > n('scatter-fused') == 0" -- ${scattered} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> sizes 2 ENV ${trace})
run(trace_scatter_whole 120 ${trace_sh} --want "n('scatter') > 6 and n('scatter-fused') == 0" -- --set SLIPRING_REDUCE_SCATTER=always
  --set SLIPRING_SLOT_BYTES=64K --set SLIPRING_FUSE=off -- $<TARGET_FILE:scatter> ex-bf16-nn 2 ENV ${trace})
run(trace_scatter_some 120 ${trace_sh} --want "n('scatter-fused') > 20 and n('ring') > 20" -- ${scattered} -- $<TARGET_FILE:scatter> loop 2
  ENV ${trace} SLIPRING_TRACE=7)
# In graphs: 8 or 9 replays, and the calls before.
foreach(ranks 2 3t)
  run(trace_scatter_graph_fused_${ranks} 120 ${trace_sh} --want "n('scatter-graph') == 8 <= n('scatter-fused')" -- ${scattered}
    --hasnt "communicator_failed" -- $<TARGET_FILE:scatter> graph-bf16 ${ranks} ENV ${trace})
  run(trace_scatter_graph_side_${ranks} 120 ${trace_sh} --want "n('scatter-graph') == 8 <= n('scatter-fused')" -- ${scattered}
    --hasnt "communicator_failed" -- $<TARGET_FILE:scatter> graph-lt-bias-side ${ranks} ENV ${trace})
endforeach()
run(trace_scatter_graph_plain 120 ${trace_sh} --want "n('scatter-graph') == 6 and n('scatter-fused') == 0" -- ${scattered}
  --hasnt "communicator_failed" -- $<TARGET_FILE:scatter> graph-plain 3 ENV ${trace})
run(trace_scatter_graph_late 120 ${trace_sh} --want "n('scatter-graph') == 7 and n('scatter-fused') >= 7" -- ${scattered}
  --hasnt "communicator_failed" -- $<TARGET_FILE:scatter> graph-reader 2 ENV ${trace})
run(trace_scatter_graph_written_late 120 ${trace_sh} --want "n('scatter-graph') == 8 <= n('scatter-fused')" -- ${scattered}
  --hasnt "communicator_failed" -- $<TARGET_FILE:scatter> graph-recv-in-a 3 ENV ${trace})
run(trace_scatter_graph_wrong 120 ${trace_sh} --want "n('scatter-graph') == 7" -- ${scattered} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> graph-copy 2 ENV ${trace})
run(trace_scatter_graph_body 120 ${trace_sh} --want "n('scatter-graph') == 0 < n('scatter-fused')" -- ${scattered} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> graph-body 2 ENV ${trace} NCCL_GRAPH_MIXING_SUPPORT=0)
run(trace_scatter_graph_left 120 ${trace_sh} --want "n('scatter-graph') == 9" -- ${scattered} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> graph-left 2 ENV ${trace})
run(trace_scatter_graph_together 120 ${trace_sh} --want "n('scatter-graph') == 36 and n('graph') == 18" -- ${scattered} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> graph-together 3 ENV ${trace})
run(trace_scatter_graph_updated 120 ${trace_sh} --want "n('scatter-graph') == 19 <= n('scatter-fused')" -- ${scattered} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> graph-updated 2 ENV ${trace})
run(trace_scatter_graph_cloned 120 ${trace_sh} --want "n('scatter-graph') == 27 <= n('scatter-fused')" -- ${scattered} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> graph-cloned 2 ENV ${trace})
run(trace_scatter_graph_again 120 ${trace_sh} --want "n('scatter-graph') == 18 <= n('scatter-fused')" -- ${scattered} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> graph-again 2 ENV ${trace})
run(trace_scatter_graph_mixed 120 ${trace_sh} --want "0 < n('scatter-graph') < n('scatter')" -- ${scattered} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> graph-mixed 3 ENV ${trace})
run(trace_scatter_graph_some 120 ${trace_sh} --want "0 < n('scatter-graph') < n('scatter')" -- ${scattered} -- $<TARGET_FILE:scatter> graph-turns 2
  ENV ${trace} SLIPRING_TRACE=3)
# All-reduces, on their lane of copies as well.
set(reduced --set SLIPRING_ALL_REDUCE=always --set SLIPRING_SLOT_BYTES=64K --set SLIPRING_FLOP_PER_BYTE=0)
foreach(ranks 2a 3a 3ta)
  run(trace_reduce_fused_${ranks} 120 ${trace_sh} --want "0 < n('scatter-fused') < n('scatter') == n('reduce')" -- ${reduced}
    --hasnt "communicator_failed" -- $<TARGET_FILE:scatter> ex-bf16-nn ${ranks} ENV ${trace})
  run(trace_reduce_in_place_${ranks} 120 ${trace_sh} --want "6 < n('scatter') == n('reduce')" -- ${reduced} --hasnt "communicator_failed"
    -- $<TARGET_FILE:scatter> in-place ${ranks} ENV ${trace})
endforeach()
run(trace_reduce_side 120 ${trace_sh} --want "0 < n('scatter-fused') < n('reduce')" -- ${reduced} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> side 3a ENV ${trace})
run(trace_reduce_uneven 120 ${trace_sh} --want "n('reduce') > n('scatter-fused') == 0" -- ${reduced} --set SLIPRING_MIN_BYTES=0
  --hasnt "communicator_failed" -- $<TARGET_FILE:scatter> uneven 3a ENV ${trace})
run(trace_reduce_overwritten 120 ${trace_sh} --want "n('reduce') > 4" -- ${reduced} --hasnt "communicator_failed"
  -- $<TARGET_FILE:scatter> overwritten-always 3a ENV ${trace})
foreach(ranks 2a 3ta)
  run(trace_reduce_graph_fused_${ranks} 120 ${trace_sh} --want "n('scatter-graph') == 8 <= n('scatter-fused') < n('reduce')" -- ${reduced}
    --hasnt "communicator_failed" -- $<TARGET_FILE:scatter> graph-bf16 ${ranks} ENV ${trace})
endforeach()
run(trace_reduce_passed 120 ${trace_sh} --want "n('AllReduce') > 6 and n('scatter') == 0" -- --set SLIPRING_ALL_REDUCE=off
  -- $<TARGET_FILE:scatter> ex-bf16-nn 2a ENV ${trace})
# What stays with NCCL is measured as all its operations are.
run(trace_scatter_passed 120 ${trace_sh} --want "n('ReduceScatter') > 6 and n('scatter') == 0" -- --set SLIPRING_REDUCE_SCATTER=off
  -- $<TARGET_FILE:scatter> ex-bf16-nn 2 ENV ${trace})
# What stays with NCCL: neither what is in a group nor what is captured is measured, but it counts.
set(kinds --calls AllReduce=3 --calls Reduce=3 --calls ReduceScatter=3 --calls Broadcast=6 --calls AlltoAll=3 --calls Gather=3 --calls Scatter=3
  --want "n('Send') + n('Recv') == 3")
run(trace_others 120 ${trace_sh} ${kinds} --calls ring=5 -- -- ${calls} 2 others 3 ENV ${trace})
run(trace_others_passed 120 ${trace_sh} ${kinds} --calls pass=4 --want "exposed > 0" -- -- ${calls} 2 others 3 ENV ${trace} SLIPRING_MIN_BYTES=1G)
run(trace_others_some 120 ${trace_sh} --calls AllReduce=2 --calls Broadcast=3 --calls pass=3 -- -- ${calls} 2 others 4 ENV ${trace}
  SLIPRING_MIN_BYTES=1G SLIPRING_TRACE=3)
# A captured operation of the software GPU's NCCL, whose graph is never launched, is not freed.
foreach(test others others_passed others_some)
  set_property(TEST trace_${test} APPEND PROPERTY ENVIRONMENT LSAN_OPTIONS=detect_leaks=0)
endforeach()
# Samples, also of ranks that do not agree, and with no other line in the log.
run(trace_every_third 120 ${trace_sh} --calls ring=4 -- --hasnt "\"event\":\"(substitute|summary)\"" -- ${calls} 3 mixed 12 ENV ${trace}
  SLIPRING_TRACE=3 SLIPRING_LOG=error)
run(trace_differ 120 ${trace_sh} --differ --without 2 --want "n('ring') in (12, 3)" -- -- ${calls} 3 mixed 12 ENV ${trace}
  "ZERO_SET_1=SLIPRING_TRACE=5" "ZERO_SET_2=SLIPRING_TRACE=0")
run(trace_off 120 ${run_sh} --has "\"event\":\"summary\"" --hasnt "\"event\":\"(gather|span|clock|collective|trace_)" -- ${calls} 2 others
  ENV SLIPRING_MIN_BYTES=0 LSAN_OPTIONS=detect_leaks=0)
run(trace_log_off 120 ${run_sh} --set SLIPRING_LOG=off --set SLIPRING_TRACE=1 --hasnt . -- ${calls} 2 mixed ENV SLIPRING_MIN_BYTES=0)
# More at once than there are records, and than a stream's queue holds; a communicator or a process that ends at once.
run(trace_flood 120 ${trace_sh} --not-all --calls ring=256 --want "(sampled, dropped) == (300, 44)" -- --set SOFTGPU_QUEUE=0 -- ${calls} 2 flood 300
  ENV ${trace})
run(trace_leave 120 ${trace_sh} --calls ring=8 -- -- ${calls} 2 leave ENV ${trace})
run(trace_unfinished 120 ${trace_sh} --not-all --want "n('ring') >= 8 and written + unfinished == 10" -- -- ${calls} 2 unfinished ENV ${trace})
run(trace_abort 120 ${trace_sh} --not-all --want "written + failed + unfinished == 9" -- -- ${calls} 3 abort ENV ${trace})
# Events that fail cost samples only.
foreach(n 1 20 60)
  run(trace_record_fails_${n} 120 ${trace_sh} --not-all --want "failed <= 1 and sampled == 24" -- -- ${calls} 2 mixed 24 ENV ${trace}
    SOFTGPU_FAIL=cuEventElapsedTime:${n})
endforeach()
run(trace_never_read 120 ${trace_sh} --not-all --want "(failed, sampled, written) == (24, 24, 0)" -- -- ${calls} 2 mixed 24 ENV ${trace}
  SOFTGPU_FAIL=cuEventElapsedTime:1+)
# Nodes that can not be made, given events, or given back what they had: those replays are not measured, and run.
set(replays_fail --set SLIPRING_GRAPHS=on -- ${calls} 2 replays 10)
run(trace_graph_node_fails 120 ${trace_sh} --not-all --want "(n('graph'), sampled, written) == (0, 3, 3)" -- ${replays_fail} ENV ${trace}
  SOFTGPU_FAIL=cuEventRecordWithFlags:1+)
foreach(n 1+ 1 30)
  run(trace_scatter_graph_node_${n}_fails 120 ${trace_sh} --not-all --want "n('scatter-graph') == 0 < sampled == written" -- ${scattered}
    -- $<TARGET_FILE:scatter> graph-bf16 2 ENV ${trace} SOFTGPU_FAIL=cuEventRecordWithFlags:${n})
endforeach()
run(trace_graph_give_fails_5 120 ${trace_sh} --not-all --want "(sampled, written, failed) == (23, 22, 1)" -- ${replays_fail} ENV ${trace}
  SOFTGPU_FAIL=cuGraphExecEventRecordNodeSetEvent:5)
run(trace_graph_give_fails 120 ${trace_sh} --not-all --want "(n('graph'), sampled, written, failed) == (0, 4, 3, 1)" -- ${replays_fail} ENV ${trace}
  SOFTGPU_FAIL=cuGraphExecEventRecordNodeSetEvent:1+)

if(SLIPRING_LONG_TESTS AND NOT SLIPRING_SANITIZE)
  add_test(NAME trace_cost COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/trace_cost.sh $<TARGET_FILE:slipring> ${SOFTGPU_DIR} $<TARGET_FILE:zero_blocks> 50)
  set_tests_properties(trace_cost PROPERTIES TIMEOUT 120 LABELS trace SKIP_RETURN_CODE 77)
endif()

# ---- mutants: what each of them says wrong, the checks have to find ----
run(trace_mutant_stale_base 120 MUTANT trace_stale_base ${trace_sh} -- -- $<TARGET_FILE:gather_matrix> 3 2000000 ENV ${trace})
run(trace_mutant_not_queried 120 MUTANT trace_not_queried ${trace_sh} -- -- ${calls} 2 flood 20 ENV ${trace})
run(trace_mutant_group_not_turned 120 MUTANT trace_group_not_turned ${trace_sh} ${each_of_group} ENV ${trace})
run(trace_mutant_not_staged 120 MUTANT trace_not_staged ${trace_sh} ${fused_staged})
run(trace_mutant_no_pull 120 MUTANT trace_no_pull ${trace_sh} -- -- ${calls} 3 mixed ENV ${trace})
run(trace_mutant_origin_counts 120 MUTANT trace_origin_counts ${trace_sh} -- -- $<TARGET_FILE:fuse> 3 other-stream ENV ${trace})
run(trace_mutant_numbered_twice 120 MUTANT trace_numbered_twice ${trace_sh} -- -- ${calls} 2 mixed ENV ${trace})
run(trace_mutant_scatter_other 120 MUTANT trace_scatter_other ${trace_sh} -- ${scattered} -- $<TARGET_FILE:scatter> loop 2 ENV ${trace})
run(trace_mutant_scatter_early 120 MUTANT trace_scatter_early ${trace_sh} -- ${scattered} -- $<TARGET_FILE:scatter> loop 2 ENV ${trace})
run(trace_mutant_scatter_uncounted 120 MUTANT trace_scatter_uncounted ${trace_sh} -- ${scattered} -- $<TARGET_FILE:scatter> ex-bf16-nn 2 ENV ${trace})
run(trace_mutant_reduce_early_end 120 MUTANT trace_reduce_early_end ${trace_sh} -- ${reduced} -- $<TARGET_FILE:scatter> ex-bf16-nn 2a ENV ${trace})
run(trace_mutant_reduce_unnamed 120 MUTANT trace_reduce_unnamed ${trace_sh} -- ${reduced} -- $<TARGET_FILE:scatter> ex-bf16-nn 2a ENV ${trace})
run(trace_mutant_scatter_all_waits 120 MUTANT trace_scatter_all_waits ${trace_sh} -- ${scattered} -- $<TARGET_FILE:scatter> loop 2 ENV ${trace})
run(trace_mutant_graph_kept 120 MUTANT trace_graph_kept ${trace_sh} -- --set SLIPRING_GRAPHS=on -- ${calls} 2 replays 20 ENV ${trace})
run(trace_mutant_graph_not_back 120 MUTANT trace_graph_not_back ${trace_sh} -- --set SLIPRING_GRAPHS=on --set SLIPRING_TRACE=3
  -- ${calls} 2 replays 50 ENV ${trace})
run(trace_mutant_graph_all_spans 120 MUTANT trace_graph_all_spans ${trace_sh} -- --set SLIPRING_GRAPHS=on -- ${calls} 2 replays 20 ENV ${trace})
run(trace_mutant_scatter_graph_unfused 120 MUTANT trace_scatter_graph_unfused ${trace_sh} -- ${scattered} -- $<TARGET_FILE:scatter> graph-bf16 2
  ENV ${trace})
run(trace_mutant_scatter_graph_no_gemm 120 MUTANT trace_scatter_graph_no_gemm ${trace_sh} -- ${scattered} -- $<TARGET_FILE:scatter> graph-bf16 2
  ENV ${trace})
run(trace_mutant_scatter_graph_no_join 120 MUTANT trace_scatter_graph_no_join ${trace_sh} -- ${scattered} -- $<TARGET_FILE:scatter> graph-plain 2
  ENV ${trace})
run(trace_mutant_scatter_graph_no_replay 120 MUTANT trace_scatter_graph_no_replay ${trace_sh} -- ${scattered} -- $<TARGET_FILE:scatter> graph-plain 2
  ENV ${trace})
