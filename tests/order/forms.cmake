# SPDX-License-Identifier: Apache-2.0
# Forms: every way to make communicators, group calls, order streams and look at a gather. Programs on the software GPU with slipring
# preloaded, as in ../programs, and mutants of the library that these programs must catch.
set(run ${CMAKE_CURRENT_SOURCE_DIR}/../programs/run.sh)
set(forms_env "SOFTGPU_DIR=${SOFTGPU_DIR};TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST}")

add_library(forms_common OBJECT forms.c ../programs/ranks.c)
target_link_libraries(forms_common PUBLIC slipring_cuda_headers)

function(forms_program name)
  add_executable(forms_${name} ${ARGN})
  target_link_libraries(forms_${name} PRIVATE forms_common softgpu_cudart softgpu_cublas softgpu_nccl softgpu_cuda pthread dl)
  target_link_options(forms_${name} PRIVATE -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs)
  set_target_properties(forms_${name} PROPERTIES SKIP_BUILD_RPATH ON)
endfunction()

# form(NAME TIMEOUT run.sh-arguments...)
function(form name timeout)
  add_test(NAME form_${name} COMMAND ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=16K ${ARGN})
  set_tests_properties(form_${name} PROPERTIES TIMEOUT ${timeout} LABELS form
    ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:slipring>")
endfunction()

forms_program(order order.c order_event.c order_host.c order_stream.c order_send.c order_comm.c order_group.c
  order_overtake.c order_small.c order_thread.c)
set_source_files_properties(order_thread.c PROPERTIES COMPILE_DEFINITIONS CUDA_API_PER_THREAD_DEFAULT_STREAM)

# ---- order: one test for each case, and the mutants ----
include(caught.cmake)

set(ring_only --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\"")
foreach(n 2 3)
  set(cases list-all)
  if(n EQUAL 3)
    set(cases list-base)
  endif()
  add_test(NAME form_order_${n} COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order> ${cases} ${n} --
    ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only})
  set_tests_properties(form_order_${n} PROPERTIES TIMEOUT 300 COST 40 LABELS "form;slow"
    ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:slipring>;SOFTGPU_SAME_STREAM=1")
endforeach()

# The same with modelled transfer times: a link so slow that a shard takes 13 ms, and slow memory operations.
add_test(NAME form_order_timing COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order>
  stream-sync,event-third,copy-async,chain-all,gemm,gemm-after-event,event-framework,event-poll-in-thread,overwrite-memset,read-old,produce-elsewhere 3 --
  ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_FLOP_PER_BYTE=0 --set SOFTGPU_TIMING=1 --set SOFTGPU_LINK_GBS=0.02
  --set SOFTGPU_MEMOP_US=300 ${ring_only})
set_tests_properties(form_order_timing PROPERTIES TIMEOUT 300 LABELS form
  ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:slipring>")

# By two threads in turn, each on its default stream; everything is about order.
set(threads --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC_MIN=1 --set SLIPRING_SLOT_BYTES=1M --set SLIPRING_FLOP_PER_BYTE=0
  --set SLIPRING_GRAPHS=on --set SLIPRING_REDUCE_SCATTER=always)
add_test(NAME form_order_thread COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order> list-thread 2 -- ${run} ${threads} ${ring_only})
set_tests_properties(form_order_thread PROPERTIES TIMEOUT 120 LABELS form
  ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:slipring>")
if(NOT SLIPRING_SANITIZE MATCHES thread)
  set_property(TEST form_order_thread APPEND PROPERTY ENVIRONMENT TEST_RACE=1)
endif()

# The method first: without the join, every case fails in which it could show.
mutant(no_join)
caught(no_join 2 list)
# The order of a communicator's operations on several streams.
mutant(comm_no_wait)
caught(comm_no_wait 2 comm-broadcast,comm-produce)
mutant(comm_stream_ends)
caught(comm_stream_ends 2 comm-produce-behind)
mutant(comm_stream_again)
caught(comm_stream_again 2 comm-produce-again)
mutant(comm_one_name)
caught(comm_one_name 2 thread-broadcast,thread-broadcast-gather,thread-ends-broadcast)
mutant(comm_noted_late)
caught(comm_noted_late 2 thread-broadcast-gather,thread-scatter-gather)
if(NOT SLIPRING_SANITIZE)
  set_property(TEST form_mutant_comm_stream_again APPEND PROPERTY ENVIRONMENT SOFTGPU_SAME_STREAM=1)
endif()
# The host has seen the gather's end, and no join says so.
mutant(query_unshown)
caught(query_unshown 2 overwrite-after-query,change-after-query)
set(held_up --set SOFTGPU_FAIL=cuLaunchKernel:1+=sleep40)
form(order_beside 60 ${held_up} --set SLIPRING_FLOP_PER_BYTE=0 --has "\"event\":\"fused\"" -- $<TARGET_FILE:forms_order> overwrite-beside 2)
mutant(query_unread)
if(NOT SLIPRING_SANITIZE)
  add_test(NAME form_mutant_query_unread COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order> overwrite-beside 2 --
    ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_FLOP_PER_BYTE=0 ${held_up})
  set_tests_properties(form_mutant_query_unread PROPERTIES TIMEOUT 60 LABELS form
    ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:mutant_query_unread>;MUTANT=1")
endif()
mutant(elsewhere_unshown)
caught(elsewhere_unshown 2 overwrite-after-elsewhere)
# The ring's own order. Two ranks; slots are small, so a shard is sixteen pieces.
mutant(no_ready_wait)
caught(no_ready_wait 2 copy-async,stream-sync)
mutant(no_ready_wait_next)
caught(no_ready_wait_next 3 copy-async,stream-sync)
mutant(no_done_wait)
caught(no_done_wait 2 copy-async,overwrite-memset)
mutant(no_entry_pull)
caught(no_entry_pull 2 read-old,read-old-gemm)
mutant(no_entry_publish)
caught(no_entry_publish 2 produce,produce-elsewhere)
mutant(own_late) # for the race oracle
mutant(no_entry_own)
caught(no_entry_own 2 produce,produce-elsewhere)
mutant(skip_first_chunk)
caught(skip_first_chunk 2 gemm)
mutant(early_done)
caught(early_done 2 copy-async)
mutant(no_publish_join)
caught(no_publish_join 2 overwrite-memset,overwrite-d2d)
mutant(skip_last_chunk)
caught(skip_last_chunk 2 gemm)
mutant(slow_pull) # no mutant by itself: the cases that catch others must not blame the slowness
mutant_needed(slow_pull)
add_test(NAME form_order_slow COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order> copy-async,gemm,overwrite-memset 2 --
  ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only})
set_tests_properties(form_order_slow PROPERTIES TIMEOUT 120 LABELS form
  ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:mutant_slow_pull>")

# Events that carry gathers. Each of these GEMMs is fused on another stream than the gather's.
set(carried event-gemm-blocking,event-gemm-legacy,event-from-legacy,event-two-waiters,event-many,event-two-gathers,event-wait-in-thread,event-framework)
add_test(NAME form_event_fused COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order> ${carried} 3 --
  ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} --has "\"event\":\"fused\".*\"via\":\"event\"")
# PyTorch's collectives that are not asynchronous: on the default stream, with an event behind that nobody waits for.
add_test(NAME form_event_told_fused COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order> event-told-from-legacy 2 --
  ${run} --set SLIPRING_MIN_BYTES=0 ${ring_only} --has "\"event\":\"fused\".*\"via\":\"stream\"" --hasnt "\"event\":\"joined\"")
add_test(NAME form_event_not_fused COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order>
  event-blocking-to-legacy,event-per-thread,event-graph-between 2 --
  ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=16K ${ring_only} --hasnt "\"event\":\"fused\"")
set_tests_properties(form_event_fused form_event_told_fused form_event_not_fused PROPERTIES TIMEOUT 120 LABELS form
  ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:slipring>")
# Groups that do not touch the gather join nothing. The small gather stays with NCCL.
add_test(NAME form_group_beside COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order>
  group-beside,group-beside-event,group-beside-passed 3 --
  ${run} --set SLIPRING_MIN_BYTES=4K --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_FLOP_PER_BYTE=0
  --has "\"event\":\"fused\"" --hasnt "\"event\":\"joined\".*\"by\":\"(ncclGroupEnd|cu|GEMM)")
set_tests_properties(form_group_beside PROPERTIES TIMEOUT 120 LABELS form
  ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:slipring>")
# The last gather of a group waits for its GEMM, on one or two streams.
add_test(NAME form_group_fused COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order>
  group-last,group-last-other,group-last-partner 3 --
  ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} --has "\"event\":\"fused\"")
set_tests_properties(form_group_fused PROPERTIES TIMEOUT 120 LABELS form
  ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:slipring>")
# What overtakes a gather leaves it to its GEMM: all of these are fused, and joined by nothing before the host looks.
add_test(NAME form_overtake_fused COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order>
  overtake-wait,overtake-wait-legacy,overtake-wait-follower,overtake-gemm,overtake-two-comms,overtake-free,overtake-event-alloc-free,overtake-map,overtake-blocking 3 --
  ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_FLOP_PER_BYTE=0 ${ring_only} --has "\"event\":\"fused\""
  --hasnt "\"event\":\"joined\".*\"by\":\"(cuStreamWaitEvent|GEMM|cuMemFreeAsync)")
set_tests_properties(form_overtake_fused PROPERTIES TIMEOUT 120 LABELS form
  ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:slipring>")
# A small gather of NCCL's behind the large one.
set(small_passes --set SLIPRING_MIN_BYTES=64K --set SLIPRING_FLOP_PER_BYTE=0 --has "\"event\":\"substitute\"" --has "below_min_bytes")
foreach(n 2 3)
  add_test(NAME form_small_${n} COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order>
    small-gemm,small-comm-gemm,small-look,small-broadcast,small-event,small-between-events,small-event-each,small-second-event,small-reads,small-writes,small-tells-peer ${n} -- ${run} ${small_passes})
  add_test(NAME form_small_fused_${n} COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order> small-gemm,small-comm-gemm,small-event-each ${n} --
    ${run} ${small_passes} --has "\"event\":\"fused\"" --hasnt "\"event\":\"joined\"")
  set_tests_properties(form_small_${n} form_small_fused_${n} PROPERTIES TIMEOUT 120 LABELS form
    ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:slipring>")
endforeach()
mutant(small_not_apart)
mutant(small_settles)
function(caught_small mutant cases)
  if(SLIPRING_SANITIZE)
    return()
  endif()
  add_test(NAME form_mutant_${mutant} COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order> ${cases} 2 -- ${run} --set SLIPRING_MIN_BYTES=64K)
  set_tests_properties(form_mutant_${mutant} PROPERTIES TIMEOUT 300 LABELS form
    ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:mutant_${mutant}>;MUTANT=1")
endfunction()
caught_small(small_not_apart small-reads,small-writes)
caught_small(small_settles small-broadcast)
mutant(small_reached)
caught_small(small_reached small-tells-peer)
mutant(small_not_carried)
caught_small(small_not_carried small-second-event)
mutant(overtaken_carries)
caught(overtaken_carries 2 overtake-event-wait-event)
mutant(overtake_captured)
if(NOT SLIPRING_SANITIZE) # the capture is lost, and the communicator fails
  add_test(NAME form_mutant_overtake_captured COMMAND ${run} --status 3 --set SLIPRING_MIN_BYTES=0
    --has "CUDA_ERROR_STREAM_CAPTURE_ISOLATION" -- $<TARGET_FILE:forms_order> event-drawn-into-capture 2)
  set_tests_properties(form_mutant_overtake_captured PROPERTIES TIMEOUT 120 LABELS form
    ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:mutant_overtake_captured>")
endif()
mutant(overtake_gemm)
caught(overtake_gemm 2 overtake-gemm-reads,overtake-gemm-send,overtake-gemm-recv)
mutant(overtake_free)
caught(overtake_free 2 overtake-free-send)
if(TEST form_mutant_overtake_free) # the software GPU ends a rank that uses freed memory, and the other one waits for it
  set_property(TEST form_mutant_overtake_free APPEND PROPERTY ENVIRONMENT SOFTGPU_HANG_SECONDS=3 SOFTGPU_HANG=abort)
endif()
mutant(overtake_elsewhere)
caught(overtake_elsewhere 2 overtake-legacy-blocking)
mutant(group_no_partner)
caught(group_no_partner 2 group-partner-sees,group-partner-tells,group-partner-nccl)
mutant(group_no_join)
caught(group_no_join 2 send-recv,group-on-its-stream,group-on-blocking,group-told-and-not)
mutant(group_unseen)
caught(group_unseen 2 group-unhooked)
forms_program(event_ipc event_ipc.c)
form(event_ipc 60 ${ring_only} -- $<TARGET_FILE:forms_event_ipc>)
mutant(carry_no_before) # for the race oracle
mutant(carry_no_alloc) # likewise
mutant(carry_no_finish)
caught(carry_no_finish 2 event-sync,event-query,thread-event,event-poll-in-thread)
mutant(carry_keep)
caught(carry_keep 2 event-record-again)
mutant(carry_no_hold)
caught(carry_no_hold 2 gemm-after-event,event-third,event-two-waiters,overwrite-other-stream)
mutant(carry_as_origin)
caught(carry_as_origin 2 event-second-hop)
mutant(carry_shared)
caught(carry_shared 2 once forms_event_ipc)

# ---- a thread that waits for room in a queue ----
forms_program(full full.c)
foreach(case query wait destroy)
  form(full_${case} 60 --set SOFTGPU_QUEUE=24 ${ring_only} -- $<TARGET_FILE:forms_full> ${case})
endforeach()

# A mutant waits for ever. each.sh's cases would wait with it, so these are other tests.
function(caught_full mutant case)
  if(NOT SLIPRING_SANITIZE)
    add_test(NAME form_mutant_${mutant} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/../faults/caught.sh "rank 0: not finished in time" ${run} --set SLIPRING_MIN_BYTES=0
      --set SLIPRING_SLOT_BYTES=16K --set SOFTGPU_QUEUE=24 -- $<TARGET_FILE:forms_full> ${case} 2)
    set_tests_properties(form_mutant_${mutant} PROPERTIES TIMEOUT 60 LABELS form
      ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:mutant_${mutant}>;RANKS_SECONDS=4")
  endif()
endfunction()
mutant(query_locks)
caught_full(query_locks query)
mutant(wait_locks)
caught_full(wait_locks wait)
mutant(mark_locks)
caught_full(mark_locks wait)
mutant(destroy_locks)
caught_full(destroy_locks destroy)
mutant(query_ready)
caught(query_ready 2 stream-query)
mutant(query_not_legacy)
caught(query_not_legacy 2 stream-query-legacy)
mutant(query_not_carried)
caught(query_not_carried 2 stream-query-events)

# ---- communicators ----
forms_program(comms comms.c comms_make.c comms_end.c)
foreach(case config config-none scalable init-all init-in-group threads mixed split-colour split-reversed split-no-colour
        split-of-split shrink many-in-group finalize destroy-at-once destroy-orders destroy-late)
  form(comms_${case} 90 ${ring_only} -- $<TARGET_FILE:forms_comms> ${case})
endforeach()
foreach(case nonblocking nonblocking-in-group)
  form(comms_${case} 90 --has "\"event\":\"pass\".*\"reason\":\"nonblocking\"" --hasnt "\"event\":\"substitute\"" -- $<TARGET_FILE:forms_comms> ${case})
endforeach()
form(comms_split-of-passing 90 --has "\"event\":\"pass\".*\"reason\":\"nonblocking\"" --has "\"event\":\"substitute\"" --
  $<TARGET_FILE:forms_comms> split-of-passing)
# Slots of the usual size: the communicators that ended must not take the place of those that live.
form(comms_hundred 120 --set SLIPRING_SLOT_BYTES=64M ${ring_only} --hasnt "staging_shrunk" -- $<TARGET_FILE:forms_comms> hundred)

# ---- groups ----
forms_program(groups groups.c)
foreach(case one-stream several-streams own-streams several-comms mixed other-stream other-stream-slow uneven nested simulated error-inside)
  form(groups_${case} 90 ${ring_only} -- $<TARGET_FILE:forms_groups> ${case})
endforeach()
mutant(no_meet)
caught(no_meet 3 other-stream forms_groups)
mutant(no_cross)
caught(no_cross 3 other-stream-slow forms_groups)
form(groups_empty 90 --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\".*\"reason\":\"(ring|com|nonb|no_)" -- $<TARGET_FILE:forms_groups> empty)
form(groups_bad-gather-inside 90 --has "\"event\":\"pass\".*\"reason\":\"bad_argument\"" --has "\"event\":\"substitute\"" --
  $<TARGET_FILE:forms_groups> bad-gather-inside)
form(groups_in-progress 90 ${ring_only} -- $<TARGET_FILE:forms_groups> in-progress)
# Ranks that see their slots at different calls have to count the same calls; and what a thread enqueues for one rank has to fit
# into its queues before the next rank's calls come.
forms_program(one_thread one_thread.c)
form(one_thread_tried 90 --set SLIPRING_SLOT_BYTES=4K --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=4 --has "\"reason\":\"trial\"" --
  $<TARGET_FILE:forms_one_thread> 2 1 25)
form(one_thread_pieces 90 --set SLIPRING_SLOT_BYTES=128K --set SLIPRING_REDUCE_SCATTER=always --has "\"reason\":\"reduce_scatter_room\"" --
  $<TARGET_FILE:forms_one_thread> 8 8 2)

# ---- size, children, threads ----
forms_program(large large.c)
# ThreadSanitizer's shadow multiplies the memory.
if(NOT SLIPRING_SANITIZE MATCHES thread)
  add_test(NAME form_large COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/need_memory.sh 14 ${run} ${ring_only} -- $<TARGET_FILE:forms_large>)
  set_tests_properties(form_large PROPERTIES TIMEOUT 180 COST 40 LABELS "form;slow" RESOURCE_LOCK large_memory SKIP_RETURN_CODE 77
    ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:slipring>")
endif()

forms_program(children children.c)
form(children 60 ${ring_only} -- $<TARGET_FILE:forms_children>)
# With the log on stderr, which the children share: not a line of it may be theirs.
form(children_quiet 60 -- env SLIPRING_LOG_FILE= SLIPRING_LOG=warn $<TARGET_FILE:forms_children>)

form(children_graphs 60 --set SLIPRING_GRAPHS=on --set RANKS_SECONDS=30 ${ring_only} -- $<TARGET_FILE:forms_children>)
mutant(fork_gate)
caught(fork_gate 2 all forms_children)
mutant(fork_pending)
caught(fork_pending 2 all forms_children)
mutant(fork_on)
caught(fork_on 2 all forms_children)
if(NOT SLIPRING_SANITIZE)
  set_property(TEST form_mutant_fork_gate form_mutant_fork_pending form_mutant_fork_on APPEND PROPERTY ENVIRONMENT RANKS_SECONDS=3)
endif()

forms_program(stress stress.c)
form(stress 120 ${ring_only} -- $<TARGET_FILE:forms_stress>)

# One process, a thread for each rank. Queues of 250 entries are full after some 40 gathers.
forms_program(threads threads.c)
foreach(n 2 3)
  foreach(case lazy ahead sync gemms)
    form(threads_${case}_${n} 60 ${ring_only} --set SOFTGPU_LAZY=1 --set SOFTGPU_QUEUE=250 -- $<TARGET_FILE:forms_threads> ${case} ${n})
  endforeach()
endforeach()

# Copies between devices that take no stream.
form(threads_between 60 ${ring_only} -- $<TARGET_FILE:forms_threads> between 2)
set_property(TEST form_threads_between APPEND PROPERTY ENVIRONMENT TEST_RACE=1)
mutant(device_not_joined)
caught(device_not_joined 2 between forms_threads)
# All ranks in one thread: each one's GEMM behind the group is fused with its gather.
form(threads_one 60 ${ring_only} --has "\"event\":\"fused\"" --hasnt "\"event\":\"joined\"" -- $<TARGET_FILE:forms_threads> one 3)

# ---- SLIPRING_VERIFY ----
set(verified --has "\"verified\":[1-9]" --has "\"verify_bad\":0" --hasnt "verify_differs|\"verify_bad\":[1-9]|not_verified")
form(verify 90 --set SLIPRING_VERIFY=1 ${ring_only} ${verified} -- $<TARGET_FILE:gather_matrix> 3 2000000)
form(verify_sample 90 --set SLIPRING_VERIFY=3 ${ring_only} ${verified} -- $<TARGET_FILE:gather_matrix> 2 2000000)
# Several ranks in one thread, and several gathers in one group.
foreach(case init-all init-in-group mixed)
  form(verify_${case} 60 --set SLIPRING_VERIFY=1 ${ring_only} ${verified} -- $<TARGET_FILE:forms_comms> ${case})
endforeach()
foreach(case several-streams several-comms uneven)
  form(verify_${case} 60 --set SLIPRING_VERIFY=1 ${ring_only} ${verified} -- $<TARGET_FILE:forms_groups> ${case})
endforeach()
mutant(verify_first)
if(NOT SLIPRING_SANITIZE)
  add_test(NAME form_mutant_verify_first COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_groups> uneven 3 --
    ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_VERIFY=1)
  set_tests_properties(form_mutant_verify_first PROPERTIES TIMEOUT 120 LABELS form
    ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:mutant_verify_first>;MUTANT=1;SOFTGPU_HANG_SECONDS=5;SOFTGPU_HANG=abort;RANKS_SECONDS=20")
endif()
# A ring that loses bytes: the application does not notice, the log does.
mutant(short_copy)
caught(short_copy 2 copy-async)
form(verify_differs 60 --set SLIPRING_VERIFY=1 --has "\"event\":\"verify_differs\".*\"offset\":[0-9]+,\"owner\":[01]"
  --has "\"verify_bad\":[1-9]" -- $<TARGET_FILE:gather_matrix> 2 2000000 4096)
mutant_needed(short_copy)
set_property(TEST form_verify_differs PROPERTY ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:mutant_short_copy>")

# ---- without slipring: the programs are right about CUDA and NCCL themselves ----
function(form_plain program cases)
  add_test(NAME form_plain_${program} COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_${program}> ${cases} 2 --
    ${run} --plain)
  set_tests_properties(form_plain_${program} PROPERTIES TIMEOUT 300 LABELS form
    ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:slipring>")
endfunction()
form_plain(order list-all)
add_test(NAME form_plain_order_thread COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:forms_order> list-thread 2 -- ${run} --plain)
set_tests_properties(form_plain_order_thread PROPERTIES TIMEOUT 120 LABELS form ENVIRONMENT "${forms_env};SLIPRING_LIB=none")
# A rank's gather comes behind another communicator's operation, which its peer makes behind the gather: NCCL has connected the ranks.
set_property(TEST form_plain_order APPEND PROPERTY ENVIRONMENT SOFTGPU_NCCL_CONNECT=0)
form_plain(comms config,nonblocking,nonblocking-in-group,split-of-passing,scalable,init-all,init-in-group,threads,mixed,split-reversed,split-no-colour,shrink,many-in-group,finalize,destroy-at-once,destroy-late)
form_plain(groups one-stream,several-streams,own-streams,several-comms,mixed,uneven,nested,simulated,empty,error-inside,bad-gather-inside,in-progress)
if(NOT SLIPRING_SANITIZE) # a shell that has nothing but the sanitizer preloaded does not run
  form_plain(children all)
endif()
form_plain(event_ipc once)
form_plain(stress once)

# Sanitizer builds: a child after fork can not stop its parent's threads.
foreach(test children children_quiet children_graphs)
  set_property(TEST form_${test} APPEND PROPERTY ENVIRONMENT LSAN_OPTIONS=detect_leaks=0)
endforeach()
