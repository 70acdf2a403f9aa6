# SPDX-License-Identifier: Apache-2.0
# Forms: every way to make communicators, group calls, order streams and look at a gather. Programs on the software GPU with slipring
# preloaded, as in ../programs, and mutants of the library that these programs must catch.
set(form ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=16K)
set(caught ${form} --set SLIPRING_FLOP_PER_BYTE=0 --set SLIPRING_GRAPHS=off) # each of a mutant's cases fails
set(libraries forms ranks cudart cublas nccl cuda)

program(forms_order order.c order_event.c order_host.c order_stream.c order_send.c order_comm.c order_group.c order_overtake.c order_small.c
  order_context.c order_thread.c LIBS ${libraries})
set_source_files_properties(order_thread.c PROPERTIES COMPILE_DEFINITIONS CUDA_API_PER_THREAD_DEFAULT_STREAM)

# ---- order: one test for each case, and the mutants ----
set(ring_only --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\",\"op\":\"allgather\"")
# Ranks of one process: but for a communicator's first call (nccl_first).
set(ring_behind_first --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\",\"op\":\"allgather\".*\"reason\":\"([^n]|n[^c])")
foreach(n 2 3)
  set(cases list-all)
  if(n EQUAL 3)
    set(cases list-base)
  endif()
  run(form_order_${n} 300 ${form} --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} EACH forms_order ${cases} ${n} LABELS form slow
    ENV SOFTGPU_SAME_STREAM=1 PROPERTIES COST 40)
endforeach()

# The same with modelled transfer times: a link so slow that a shard takes 13 ms, and slow memory operations.
run(form_order_timing 300 ${form} --set SLIPRING_FLOP_PER_BYTE=0 --set SOFTGPU_TIMING=1 --set SOFTGPU_LINK_GBS=0.02 --set SOFTGPU_MEMOP_US=300
  ${ring_only}
  EACH forms_order stream-sync,event-third,copy-async,chain-all,gemm,gemm-after-event,event-framework,event-poll-in-thread,overwrite-memset,read-old,produce-elsewhere 3)

# By two threads in turn, each on its default stream; everything is about order.
set(threads --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC_MIN=1 --set SLIPRING_SLOT_BYTES=1M --set SLIPRING_FLOP_PER_BYTE=0
  --set SLIPRING_GRAPHS=on --set SLIPRING_REDUCE_SCATTER=always)
run(form_order_thread 120 ${run_sh} ${threads} ${ring_only} EACH forms_order list-thread 2)
if(NOT SLIPRING_SANITIZE MATCHES thread)
  set_property(TEST form_order_thread APPEND PROPERTY ENVIRONMENT TEST_RACE=1)
endif()

# The method first: without the join, every case fails in which it could show.
run(form_mutant_no_join 300 MUTANT no_join ${caught} EACH forms_order list 2)
# The order of a communicator's operations on several streams.
run(form_mutant_comm_no_wait 300 MUTANT comm_no_wait ${caught} EACH forms_order comm-broadcast,comm-produce 2)
run(form_mutant_comm_stream_ends 300 MUTANT comm_stream_ends ${caught} EACH forms_order comm-produce-behind 2)
run(form_mutant_comm_stream_again 300 MUTANT comm_stream_again ${caught} EACH forms_order comm-produce-again 2 ENV SOFTGPU_SAME_STREAM=1)
run(form_mutant_comm_one_name 300 MUTANT comm_one_name ${caught} EACH forms_order thread-broadcast,thread-broadcast-gather,thread-ends-broadcast 2)
run(form_mutant_comm_noted_late 300 MUTANT comm_noted_late ${caught} EACH forms_order thread-broadcast-gather,thread-scatter-gather 2)
# The host has seen the gather's end, and no join says so.
run(form_mutant_query_unshown 300 MUTANT query_unshown ${caught} EACH forms_order overwrite-after-query,change-after-query 2)
set(held_up --set SOFTGPU_FAIL=cuLaunchKernel:1+=sleep40)
run(form_order_beside 60 ${form} ${held_up} --set SLIPRING_FLOP_PER_BYTE=0 --has "\"event\":\"fused\""
  -- $<TARGET_FILE:forms_order> overwrite-beside 2)
run(form_mutant_query_unread 60 MUTANT query_unread ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_FLOP_PER_BYTE=0 ${held_up}
  EACH forms_order overwrite-beside 2)
run(form_mutant_elsewhere_unshown 300 MUTANT elsewhere_unshown ${caught} EACH forms_order overwrite-after-elsewhere 2)
# The ring's own order. Two ranks; slots are small, so a shard is sixteen pieces.
run(form_mutant_no_ready_wait 300 MUTANT no_ready_wait ${caught} EACH forms_order copy-async,stream-sync 2)
run(form_mutant_no_ready_wait_next 300 MUTANT no_ready_wait_next ${caught} EACH forms_order copy-async,stream-sync 3)
run(form_mutant_no_done_wait 300 MUTANT no_done_wait ${caught} EACH forms_order copy-async,overwrite-memset 2)
run(form_mutant_no_entry_pull 300 MUTANT no_entry_pull ${caught} EACH forms_order read-old,read-old-gemm 2)
run(form_mutant_no_entry_publish 300 MUTANT no_entry_publish ${caught} EACH forms_order produce,produce-elsewhere 2)
run(form_mutant_no_entry_own 300 MUTANT no_entry_own ${caught} EACH forms_order produce,produce-elsewhere 2)
run(form_mutant_skip_first_chunk 300 MUTANT skip_first_chunk ${caught} EACH forms_order gemm 2)
run(form_mutant_early_done 300 MUTANT early_done ${caught} EACH forms_order copy-async 2)
run(form_mutant_no_publish_join 300 MUTANT no_publish_join ${caught} EACH forms_order overwrite-memset,overwrite-d2d 2)
run(form_mutant_skip_last_chunk 300 MUTANT skip_last_chunk ${caught} EACH forms_order gemm 2)
# No mutant by itself: the cases that catch others must not blame the slowness.
mutant(slow_pull)
run(form_order_slow 120 LIB $<TARGET_FILE:mutant_slow_pull> ${form} --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only}
  EACH forms_order copy-async,gemm,overwrite-memset 2)

# Events that carry gathers. Each of these GEMMs is fused on another stream than the gather's.
set(carried event-gemm-blocking,event-gemm-legacy,event-from-legacy,event-two-waiters,event-many,event-two-gathers,event-wait-in-thread,event-framework)
run(form_event_fused 120 ${form} --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} --has "\"event\":\"fused\".*\"via\":\"event\""
  EACH forms_order ${carried} 3)
# PyTorch's collectives that are not asynchronous: on the default stream, with an event behind that nobody waits for.
run(form_event_told_fused 120 ${run_sh} --set SLIPRING_MIN_BYTES=0 ${ring_only} --has "\"event\":\"fused\".*\"via\":\"stream\""
  --hasnt "\"event\":\"joined\"" EACH forms_order event-told-from-legacy 2)
run(form_event_not_fused 120 ${form} ${ring_only} --hasnt "\"event\":\"fused\""
  EACH forms_order event-blocking-to-legacy,event-per-thread,event-graph-between 2)
# Groups that do not touch the gather join nothing. The small gather stays with NCCL.
run(form_group_beside 120 ${run_sh} --set SLIPRING_MIN_BYTES=4K --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_FLOP_PER_BYTE=0
  --has "\"event\":\"fused\"" --hasnt "\"event\":\"joined\".*\"by\":\"(ncclGroupEnd|cu|GEMM)"
  EACH forms_order group-beside,group-beside-event,group-beside-passed 3)
# The last gather of a group waits for its GEMM, on one or two streams.
run(form_group_fused 120 ${form} --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} --has "\"event\":\"fused\""
  EACH forms_order group-last,group-last-other,group-last-partner 3)
# And so does each of the others for its own; on the first, or when it has been told, nothing but the host's look joins.
run(form_group_each_fused 120 ${form} --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} --has "\"event\":\"count\",\"reason\":\"fused\",\"n\":6[,}]"
  --hasnt "\"event\":\"joined\".*\"by\":\"(ncclAllGather|GEMM|cuMemcpy)" EACH forms_order group-each,group-each-told 3)
run(form_group_by_first_fused 120 ${form} --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} --has "\"event\":\"fused\"" EACH forms_order group-second-by-first 3)
# What overtakes a gather leaves it to its GEMM: all of these are fused, and joined by nothing before the host looks.
run(form_overtake_fused 120 ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} --has "\"event\":\"fused\""
  --hasnt "\"event\":\"joined\".*\"by\":\"(cuStreamWaitEvent|GEMM|cuMemFreeAsync)"
  EACH forms_order overtake-wait,overtake-wait-legacy,overtake-wait-follower,overtake-gemm,overtake-two-comms,overtake-free,overtake-event-alloc-free,overtake-map,overtake-blocking 3)
# A small gather of NCCL's behind the large one.
set(small_passes --set SLIPRING_MIN_BYTES=64K --set SLIPRING_FLOP_PER_BYTE=0 --has "\"event\":\"substitute\"" --has "below_min_bytes")
foreach(n 2 3)
  run(form_small_${n} 120 ${run_sh} ${small_passes}
    EACH forms_order small-gemm,small-comm-gemm,small-look,small-broadcast,small-event,small-between-events,small-event-each,small-second-event,small-reads,small-writes,small-tells-peer ${n})
  run(form_small_fused_${n} 120 ${run_sh} ${small_passes} --has "\"event\":\"fused\"" --hasnt "\"event\":\"joined\""
    EACH forms_order small-gemm,small-comm-gemm,small-event-each ${n})
endforeach()
run(form_mutant_small_not_apart 300 MUTANT small_not_apart ${run_sh} --set SLIPRING_MIN_BYTES=64K EACH forms_order small-reads,small-writes 2)
run(form_mutant_small_behind 300 MUTANT small_behind ${run_sh} --set SLIPRING_MIN_BYTES=64K EACH forms_order small-broadcast 2)
run(form_mutant_small_reached 300 MUTANT small_reached ${run_sh} --set SLIPRING_MIN_BYTES=64K EACH forms_order small-tells-peer 2)
run(form_mutant_small_not_carried 300 MUTANT small_not_carried ${run_sh} --set SLIPRING_MIN_BYTES=64K EACH forms_order small-second-event 2)
run(form_mutant_overtaken_carries 300 MUTANT overtaken_carries ${caught} EACH forms_order overtake-event-wait-event 2)
# the capture is lost, and the communicator fails
run(form_mutant_overtake_captured 120 WITH overtake_captured ${run_sh} --status 3 --set SLIPRING_MIN_BYTES=0
  --has "CUDA_ERROR_STREAM_CAPTURE_ISOLATION" -- $<TARGET_FILE:forms_order> event-drawn-into-capture 2)
run(form_mutant_overtake_gemm 300 MUTANT overtake_gemm ${caught} EACH forms_order overtake-gemm-reads,overtake-gemm-send,overtake-gemm-recv 2)
run(form_mutant_overtake_free 300 MUTANT overtake_free ${caught} EACH forms_order overtake-free-send 2 ENV SOFTGPU_HANG_SECONDS=3 SOFTGPU_HANG=abort)
run(form_mutant_overtake_elsewhere 300 MUTANT overtake_elsewhere ${caught} EACH forms_order overtake-legacy-blocking 2)
run(form_mutant_group_all_consumed 300 MUTANT group_all_consumed ${caught} EACH forms_order group-each,group-each-told 2)
run(form_mutant_group_none_needed 300 MUTANT group_none_needed ${caught} EACH forms_order group-first-in-part 2)
run(form_mutant_group_not_besides 300 MUTANT group_not_besides ${caught} EACH forms_order group-first-into-second 2)
run(form_mutant_group_not_before 300 MUTANT group_not_before ${caught} EACH forms_order group-second-by-first 2)
run(form_mutant_group_too_many 300 MUTANT group_too_many ${caught} EACH forms_order group-many 2)
run(form_mutant_group_no_partner 300 MUTANT group_no_partner ${caught} EACH forms_order group-partner-sees,group-partner-tells,group-partner-nccl 2)
run(form_mutant_group_no_join 300 MUTANT group_no_join ${caught} EACH forms_order send-recv,group-on-its-stream,group-on-blocking,group-told-and-not 2)
run(form_mutant_group_unseen 300 MUTANT group_unseen ${caught} EACH forms_order group-unhooked 2)
program(forms_event_ipc event_ipc.c LIBS ${libraries})
run(form_event_ipc 60 ${form} ${ring_only} -- $<TARGET_FILE:forms_event_ipc>)
run(form_mutant_carry_no_finish 300 MUTANT carry_no_finish ${caught} EACH forms_order event-sync,event-query,thread-event,event-poll-in-thread 2)
run(form_mutant_carry_keep 300 MUTANT carry_keep ${caught} EACH forms_order event-record-again 2)
run(form_mutant_carry_no_hold 300 MUTANT carry_no_hold ${caught}
  EACH forms_order gemm-after-event,event-third,event-two-waiters,overwrite-other-stream 2)
run(form_mutant_carry_as_origin 300 MUTANT carry_as_origin ${caught} EACH forms_order event-second-hop 2)
run(form_mutant_carry_shared 300 MUTANT carry_shared ${caught} EACH forms_event_ipc once 2)

# ---- other contexts ----
# Whole programs with their streams in green contexts, and with one current.
foreach(how streams current)
  set(cases list-all)
  if(how STREQUAL current) # where a missing join shows
    set(cases list)
  endif()
  run(form_contexts_${how} 300 LIB ${contexts} ${form} --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} EACH forms_order ${cases} 2 LABELS form slow
    ENV TEST_CONTEXTS=${how} PROPERTIES COST 40)
  run(form_contexts_${how}_fused 120 LIB ${contexts} ${form} --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} --has "\"event\":\"fused\".*\"via\":\"event\""
    EACH forms_order event-gemm-blocking,event-two-waiters,event-many,event-framework,context-gemm-event 3 ENV TEST_CONTEXTS=${how})
endforeach()
set(context_looks context-sync,context-sync-named,context-record,context-record-green)
set(foreign ${form} --set SLIPRING_ALL_REDUCE=always)
set(foreign_only --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\"|communicator_failed")
foreach(n 2 3)
  run(form_context_${n} 120 ${form} --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only}
    EACH forms_order ${context_looks},context-record-primary,context-wait,context-wait-green,context-gemm,context-gemm-event ${n} ENV TEST_RACE=1)
  run(form_context_gemm_${n} 120 ${form} --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} --has "\"event\":\"fused\""
    EACH forms_order context-gemm-wait ${n} ENV TEST_RACE=1)
  run(form_context_sum_${n} 120 ${form} --set SLIPRING_ALL_REDUCE=always ${ring_only} --hasnt "\"event\":\"pass\""
    EACH forms_order context-sum-wait ${n} ENV TEST_RACE=1)
  run(form_foreign_${n} 120 ${foreign} ${foreign_only} EACH forms_order list-foreign ${n} ENV TEST_RACE=1)
endforeach()
run(form_context_fused 120 ${form} --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} --has "\"event\":\"fused\""
  EACH forms_order context-gemm,context-gemm-event 2)
# Where the driver records no event of the primary context on a stream of a green one, that one's streams are foreign.
run(form_context_strict 120 ${form} ${ring_only} --has "\"reason\":\"other_context\"" EACH forms_order context-sync,context-wait-green 2
  ENV SOFTGPU_GREEN_EVENTS=0)
run(form_context_strict_order 120 LIB ${contexts} ${form} ${ring_only} EACH forms_order comm-broadcast,comm-produce,comm-produce-destroy,comm-reduce 2
  ENV TEST_CONTEXTS=current SOFTGPU_GREEN_EVENTS=0)
mutant(context_order_own)
run(form_mutant_context_order_own 60 LIB $<TARGET_FILE:contexts>:$<TARGET_FILE:mutant_context_order_own>
  ${caught_sh} "could not be ordered" ${form} --misuse-ok -- $<TARGET_FILE:forms_order> comm-broadcast 2
  ENV TEST_CONTEXTS=current SOFTGPU_GREEN_EVENTS=0 RANKS_SECONDS=4)
run(form_foreign_verified 120 ${foreign} --set SLIPRING_VERIFY=1 --has "\"verified\":[1-9]" --has "\"verify_bad\":0"
  EACH forms_order foreign-see,foreign-group 2)
run(form_mutant_context_current 300 MUTANT context_current ${caught} EACH forms_order context-sync-named,context-record 2)
run(form_mutant_context_current_green 300 MUTANT context_current_green ${caught} EACH forms_order context-record-green 2)
run(form_mutant_context_own_home 300 MUTANT context_own_home ${caught} EACH forms_order context-sync 2)
run(form_mutant_context_not_entered 300 MUTANT context_not_entered ${foreign} EACH forms_order foreign-see,default-of-green 2)
run(form_mutant_context_not_left 300 MUTANT context_not_left ${foreign} EACH forms_order foreign-see,foreign-overwrite,foreign-sync 2)
run(form_mutant_context_one_default 300 MUTANT context_one_default ${foreign} EACH forms_order default-of-green,default-of-created 2)
run(form_mutant_context_not_stood 300 MUTANT context_not_stood ${caught} EACH forms_order context-sync,context-record-green,context-wait-green 2)
run(form_mutant_context_gemm_not_stood 300 MUTANT context_gemm_not_stood ${caught} EACH forms_order context-gemm-wait 2 ENV TEST_RACE=1)
run(form_mutant_context_sum_not_stood 300 MUTANT context_sum_not_stood ${caught} --set SLIPRING_ALL_REDUCE=always EACH forms_order context-sum-wait 2)
run(form_mutant_context_other_default 300 MUTANT context_other_default ${foreign} EACH forms_order default-of-either 2)

# ---- a thread that waits for room in a queue ----
program(forms_full full.c LIBS ${libraries})
foreach(case query wait destroy)
  run(form_full_${case} 60 ${form} --set SOFTGPU_QUEUE=24 ${ring_only} -- $<TARGET_FILE:forms_full> ${case})
endforeach()

# A mutant waits for ever. each.sh's cases would wait with it, so these are other tests.
run(form_mutant_query_locks 60 WITH query_locks ${caught_sh} "rank 0: not finished in time" ${form} --set SOFTGPU_QUEUE=24
  -- $<TARGET_FILE:forms_full> query 2 ENV RANKS_SECONDS=4)
run(form_mutant_wait_locks 60 WITH wait_locks ${caught_sh} "rank 0: not finished in time" ${form} --set SOFTGPU_QUEUE=24
  -- $<TARGET_FILE:forms_full> wait 2 ENV RANKS_SECONDS=4)
run(form_mutant_mark_locks 60 WITH mark_locks ${caught_sh} "rank 0: not finished in time" ${form} --set SOFTGPU_QUEUE=24
  -- $<TARGET_FILE:forms_full> wait 2 ENV RANKS_SECONDS=4)
run(form_mutant_destroy_locks 60 WITH destroy_locks ${caught_sh} "rank 0: not finished in time" ${form} --set SOFTGPU_QUEUE=24
  -- $<TARGET_FILE:forms_full> destroy 2 ENV RANKS_SECONDS=4)
run(form_mutant_query_ready 300 MUTANT query_ready ${caught} EACH forms_order stream-query 2)
run(form_mutant_query_not_legacy 300 MUTANT query_not_legacy ${caught} EACH forms_order stream-query-legacy 2)
run(form_mutant_query_not_carried 300 MUTANT query_not_carried ${caught} EACH forms_order stream-query-events 2)

# ---- communicators ----
program(forms_comms comms.c comms_make.c comms_split.c comms_end.c LIBS ${libraries})
foreach(case config config-none scalable split-colour split-reversed split-no-colour split-of-split shrink grow grow-again many-in-group finalize
        destroy-at-once destroy-orders destroy-late)
  run(form_comms_${case} 90 ${form} ${ring_only} -- $<TARGET_FILE:forms_comms> ${case})
endforeach()
foreach(case init-all init-in-group threads mixed)
  run(form_comms_${case} 90 ${form} ${ring_behind_first} -- $<TARGET_FILE:forms_comms> ${case})
endforeach()
foreach(case nonblocking nonblocking-in-group nonblocking-split nonblocking-late nonblocking-some nonblocking-groups nonblocking-shrink
        nonblocking-grow nonblocking-abort)
  run(form_comms_${case} 90 ${form} ${ring_only} -- $<TARGET_FILE:forms_comms> ${case} ENV SOFTGPU_NCCL_ENDED=1)
endforeach()
run(form_comms_grow-absent 90 ${form} --has "\"event\":\"pass\",\"op\":\"allgather\".*\"reason\":\"rank_absent\"" --hasnt "\"event\":\"substitute\""
  -- $<TARGET_FILE:forms_comms> grow-absent)
run(form_comms_nonblocking-unfinished 90 ${form} --has "\"event\":\"pass\".*\"reason\":\"in_progress\"" --has "\"event\":\"substitute\""
  -- $<TARGET_FILE:forms_comms> nonblocking-unfinished ENV SOFTGPU_NCCL_LATER_US=50000)
# These ask NCCL itself while slipring does, which NCCL's code is not for.
run(form_comms_nonblocking-unasked 90 ${form} --misuse-ok --hasnt "communicator_not_tracked" -- $<TARGET_FILE:forms_comms> nonblocking-unasked)
run(form_comms_nonblocking-abort-made 90 ${form} --misuse-ok --set SOFTGPU_NCCL_BLIND=0 -- $<TARGET_FILE:forms_comms> nonblocking-abort-made)

# What other programs do, on communicators that are not blocking.
foreach(n 2 3)
  run(form_later_order_${n} 180 LIB ${nonblocking} ${form} ${ring_only}
    EACH forms_order copy-async,gemm,overwrite-memset,event-gemm-blocking,send-recv ${n} ENV TEST_RACE=1 SOFTGPU_NCCL_LATER_US=2000)
endforeach()
run(form_later_groups 180 LIB ${nonblocking} ${form} ${ring_only} EACH forms_groups several-comms,mixed,other-stream,uneven,nested 3 ENV TEST_RACE=1)
run(form_later_grow 180 LIB ${nonblocking} ${form} ${ring_only} EACH forms_comms grow,grow-again 4 ENV SOFTGPU_NCCL_LATER_US=2000)
# The program asks while slipring does: NCCL's code is not for that.
run(form_mutant_making_answer 120 MUTANT making_answer ${form} EACH forms_comms nonblocking 2 ENV SOFTGPU_NCCL_JOIN_US=20000)
foreach(row "not_offered grow,grow-again" "not_kept grow" "not_awaited grow,grow-again" "refused grow-again")
  separate_arguments(row)
  list(POP_FRONT row name cases)
  run(form_mutant_grow_${name} 120 MUTANT grow_${name} ${form} --set SLIPRING_AGREE_TIMEOUT=300ms ${ring_only} EACH forms_comms ${cases} 4)
endforeach()
run(form_mutant_grow_says 120 WITH grow_says ${caught_sh} "in progress" ${form} ${ring_only} -- $<TARGET_FILE:forms_comms> nonblocking-grow)
run(form_mutant_making_await 120 WITH making_await ${caught_sh} "communicator_not_tracked|not finished in time" ${form} --misuse-ok
  --hasnt "communicator_not_tracked" -- $<TARGET_FILE:forms_comms> nonblocking-unasked ENV RANKS_SECONDS=8)
run(form_mutant_making_end 120 MUTANT making_end ${form} EACH forms_comms nonblocking-abort 2 ENV SOFTGPU_NCCL_ENDED=1)
run(form_mutant_late_unfinished 120 MUTANT late_unfinished ${form} EACH forms_comms nonblocking-unfinished 2 ENV SOFTGPU_NCCL_LATER_US=50000)
run(form_mutant_late_not_crossed 120 MUTANT late_not_crossed ${form} EACH forms_groups in-progress 3 ENV SOFTGPU_NCCL_LATER_US=5000)
# Slots of the usual size: the communicators that ended must not take the place of those that live.
run(form_comms_hundred 120 ${form} --set SLIPRING_SLOT_BYTES=64M ${ring_only} --hasnt "staging_shrunk" -- $<TARGET_FILE:forms_comms> hundred)

# ---- groups ----
program(forms_groups groups.c LIBS ${libraries})
foreach(case one-stream several-streams own-streams several-comms mixed other-stream other-stream-slow uneven nested simulated error-inside)
  run(form_groups_${case} 90 ${form} ${ring_only} -- $<TARGET_FILE:forms_groups> ${case})
endforeach()
set(configured --has "\"event\":\"pass\",\"op\":\"allgather\".*\"reason\":\"call_configured\"" --has "\"event\":\"substitute\""
  --has "\"event\":\"pass\",\"op\":\"allreduce\".*\"reason\":\"call_configured\"")
run(form_groups_configured 90 ${form} ${configured} -- $<TARGET_FILE:forms_groups> configured ENV TEST_RACE=1)
run(form_groups_unknown 90 ${form} ${ring_only} --has "\"event\":\"unknown_function\".*ncclToComeAllGather"
  --hasnt "\"event\":\"unknown_function\".*ncclCommCount" -- $<TARGET_FILE:forms_groups> unknown ENV TEST_RACE=1)
run(form_mutant_no_join_unknown 120 MUTANT no_join ${caught} EACH forms_groups unknown 3)
run(form_mutant_left_unknown 120 MUTANT left_unknown ${form} --hasnt "\"event\":\"unknown_function\".*ncclCommCount" EACH forms_groups unknown 3)
run(form_mutant_configured_held 120 WITH configured_held ${caught_sh} "invalid argument" ${form} ${configured} -- $<TARGET_FILE:forms_groups> configured)
run(form_mutant_configured_plain 120 MUTANT configured_plain ${form} ${configured} EACH forms_groups configured 3)
run(form_mutant_no_meet 300 MUTANT no_meet ${caught} EACH forms_groups other-stream 3)
run(form_mutant_no_cross 300 MUTANT no_cross ${caught} EACH forms_groups other-stream-slow 3)
run(form_groups_empty 90 ${form} --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\",\"op\":\"allgather\".*\"reason\":\"(ring|com|nonb|no_)"
  -- $<TARGET_FILE:forms_groups> empty)
run(form_groups_bad-gather-inside 90 ${form} --has "\"event\":\"pass\".*\"reason\":\"bad_argument\"" --has "\"event\":\"substitute\""
  -- $<TARGET_FILE:forms_groups> bad-gather-inside)
run(form_groups_in-progress 90 ${form} ${ring_only} -- $<TARGET_FILE:forms_groups> in-progress)
# Ranks that see their slots at different calls have to count the same calls; and what a thread enqueues for one rank has to fit
# into its queues before the next rank's calls come.
program(forms_one_thread one_thread.c LIBS ${libraries})
run(form_one_thread_tried 90 ${form} --set SLIPRING_SLOT_BYTES=4K --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=4 --has "\"reason\":\"trial\""
  -- $<TARGET_FILE:forms_one_thread> 2 1 25)
run(form_one_thread_pieces 90 ${form} --set SLIPRING_SLOT_BYTES=128K --set SLIPRING_REDUCE_SCATTER=always --has "\"reason\":\"reduce_scatter_room\""
  -- $<TARGET_FILE:forms_one_thread> 8 8 2)

# ---- size, children, threads ----
program(forms_large large.c LIBS ${libraries})
# ThreadSanitizer's shadow multiplies the memory.
if(NOT SLIPRING_SANITIZE MATCHES thread)
  run(form_large 180 ${CMAKE_CURRENT_SOURCE_DIR}/need_memory.sh 14 ${run_sh} ${ring_only} -- $<TARGET_FILE:forms_large> LABELS form slow
    PROPERTIES COST 40 RESOURCE_LOCK large_memory SKIP_RETURN_CODE 77)
endif()

program(forms_children children.c LIBS ${libraries})
run(form_children 60 ${form} ${ring_behind_first} -- $<TARGET_FILE:forms_children>)
# With the log on stderr, which the children share: not a line of it may be theirs.
run(form_children_quiet 60 ${form} -- env SLIPRING_LOG_FILE= SLIPRING_LOG=warn $<TARGET_FILE:forms_children>)

run(form_children_graphs 60 ${form} --set SLIPRING_GRAPHS=on --set RANKS_SECONDS=30 ${ring_behind_first} -- $<TARGET_FILE:forms_children>)
run(form_mutant_fork_gate 300 MUTANT fork_gate ${caught} EACH forms_children all 2 ENV RANKS_SECONDS=3)
run(form_mutant_fork_pending 300 MUTANT fork_pending ${caught} EACH forms_children all 2 ENV RANKS_SECONDS=3)
run(form_mutant_fork_on 300 MUTANT fork_on ${caught} EACH forms_children all 2 ENV RANKS_SECONDS=3)

program(forms_stress stress.c LIBS ${libraries})
run(form_stress 120 ${form} ${ring_only} -- $<TARGET_FILE:forms_stress>)

# One process, a thread for each rank. Queues of 250 entries are full after some 40 gathers.
program(forms_threads threads.c LIBS ${libraries})
foreach(n 2 3)
  foreach(case lazy ahead sync gemms)
    run(form_threads_${case}_${n} 60 ${form} ${ring_behind_first} --set SOFTGPU_LAZY=1 --set SOFTGPU_QUEUE=250 -- $<TARGET_FILE:forms_threads> ${case} ${n})
  endforeach()
endforeach()

# Copies between devices that take no stream.
run(form_threads_between 60 ${form} ${ring_behind_first} -- $<TARGET_FILE:forms_threads> between 2 ENV TEST_RACE=1)
run(form_mutant_device_not_joined 300 MUTANT device_not_joined ${caught} EACH forms_threads between 2)
# All ranks in one thread: each one's GEMM behind the group is fused with its gather.
run(form_threads_one 60 ${form} ${ring_behind_first} --has "\"event\":\"fused\"" --hasnt "\"event\":\"joined\"" -- $<TARGET_FILE:forms_threads> one 3)

# ---- SLIPRING_VERIFY ----
set(verified --has "\"verified\":[1-9]" --has "\"verify_bad\":0" --hasnt "verify_differs|\"verify_bad\":[1-9]|not_verified")
run(form_verify 90 ${form} --set SLIPRING_VERIFY=1 ${ring_only} ${verified} -- $<TARGET_FILE:gather_matrix> 3 2000000)
run(form_verify_sample 90 ${form} --set SLIPRING_VERIFY=3 ${ring_only} ${verified} -- $<TARGET_FILE:gather_matrix> 2 2000000)
# Several ranks in one thread, and several gathers in one group.
foreach(case init-all init-in-group mixed)
  run(form_verify_${case} 60 ${form} --set SLIPRING_VERIFY=1 ${ring_behind_first} ${verified} -- $<TARGET_FILE:forms_comms> ${case})
endforeach()
foreach(case several-streams several-comms uneven)
  run(form_verify_${case} 60 ${form} --set SLIPRING_VERIFY=1 ${ring_only} ${verified} -- $<TARGET_FILE:forms_groups> ${case})
endforeach()
run(form_mutant_verify_first 120 MUTANT verify_first ${form} --set SLIPRING_VERIFY=1 EACH forms_groups uneven 3 ENV SOFTGPU_HANG_SECONDS=5
  SOFTGPU_HANG=abort RANKS_SECONDS=20)
# A ring that loses bytes: the application does not notice, the log does.
run(form_mutant_short_copy 300 MUTANT short_copy ${caught} EACH forms_order copy-async 2)
mutant(short_copy)
run(form_verify_differs 60 LIB $<TARGET_FILE:mutant_short_copy> ${form} --set SLIPRING_VERIFY=1
  --has "\"event\":\"verify_differs\".*\"offset\":[0-9]+,\"owner\":[01]" --has "\"verify_bad\":[1-9]" -- $<TARGET_FILE:gather_matrix> 2 2000000 4096)

# ---- without slipring: the programs are right about CUDA and NCCL themselves ----
run(form_plain_order 300 ${run_sh} --plain EACH forms_order list-all 2 ENV SOFTGPU_NCCL_CONNECT=0)
run(form_plain_order_thread 120 LIB none ${run_sh} --plain EACH forms_order list-thread 2)
# A rank's gather comes behind another communicator's operation, which its peer makes behind the gather: NCCL has connected the ranks.
run(form_plain_comms 300 ${run_sh} --plain
  EACH forms_comms config,nonblocking,nonblocking-in-group,nonblocking-split,scalable,init-all,init-in-group,threads,mixed,split-reversed,split-no-colour,shrink,many-in-group,finalize,destroy-at-once,destroy-late 2)
run(form_plain_groups 300 ${run_sh} --plain
  EACH forms_groups one-stream,several-streams,own-streams,several-comms,mixed,uneven,nested,simulated,empty,error-inside,bad-gather-inside,in-progress 2)
if(NOT SLIPRING_SANITIZE) # a shell that has nothing but the sanitizer preloaded does not run
  run(form_plain_children 300 ${run_sh} --plain EACH forms_children all 2)
endif()
run(form_plain_event_ipc 300 ${run_sh} --plain EACH forms_event_ipc once 2)
run(form_plain_stress 300 ${run_sh} --plain EACH forms_stress once 2)

# Sanitizer builds: a child after fork can not stop its parent's threads.
foreach(test children children_quiet children_graphs)
  set_property(TEST form_${test} APPEND PROPERTY ENVIRONMENT LSAN_OPTIONS=detect_leaks=0)
endforeach()

# ---- NCCL's kernels in front, as the program has asked for one hardware queue ----
program(forms_front front.c LIBS ${libraries})
set(front ${run_sh} --hasnt "stalled|communicator_failed|cuda_error")
set(one_queue --set CUDA_DEVICE_MAX_CONNECTIONS=1)
run(form_front 60 ${front} ${one_queue} -- $<TARGET_FILE:forms_front> 2 stands)
run(form_front_alone 60 ${front} ${one_queue} --set SLIPRING_ENABLE=off -- $<TARGET_FILE:forms_front> 2 stands)
run(form_front_usual 60 ${front} -- $<TARGET_FILE:forms_front> 2 goes)
run(form_mutant_front_unseen 60 WITH front_unseen ${front} ${one_queue} --status 1 -- $<TARGET_FILE:forms_front> 2 stands)
run(form_mutant_front_host 60 WITH front_host ${front} ${one_queue} --status 4 -- $<TARGET_FILE:forms_front> 2 stands ENV RANKS_SECONDS=3)
run(form_mutant_front_gemm 60 WITH front_gemm ${front} ${one_queue} --status 1 -- $<TARGET_FILE:forms_front> 2 stands)
run(form_mutant_front_group 60 WITH front_group ${front} ${one_queue} --status 1 -- $<TARGET_FILE:forms_front> 2 stands)
