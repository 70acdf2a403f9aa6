# SPDX-License-Identifier: Apache-2.0
# Strangers: processes on the machine that are no ranks of the communicator, of this user or of
# another. As root another user is a real one (setresuid); without, getsockopt and recvmsg of the
# process under test say so. No test is left out.
set(plugin ${PROJECT_SOURCE_DIR}/plugin)
set(bootstrap ${plugin}/bootstrap/bootstrap.c ${plugin}/bootstrap/acceptor.c ${plugin}/comm/key.c)

set(wrapped -Wl,--wrap=getsockopt -Wl,--wrap=recvmsg -Wl,--wrap=send -Wl,--wrap=setsockopt -Wl,--wrap=accept4)
set(sources_bootstrap test_bootstrap.c test_bootstrap_member.c ${bootstrap})
set(sources_oob test_oob.c ${plugin}/bootstrap/oob.c ${bootstrap})
set(sources_peer_process ${PROJECT_SOURCE_DIR}/tests/unit/test_peer_process.c ${plugin}/comm/peer_process.c ${plugin}/comm/key.c)
foreach(name bootstrap oob)
  program(strangers_${name} ${sources_${name}} strangers_people.c LIBS slr_criterion slr_base)
  target_link_options(strangers_${name} PRIVATE ${wrapped})
  add_test(NAME strangers_${name} COMMAND strangers_${name} --jobs 1)
  set_tests_properties(strangers_${name} PROPERTIES TIMEOUT 200 LABELS strangers)
endforeach()

# The program with the source of a mutant must fail.
set(mutants # MUTANT PROGRAM FILTER
  "accept_any_user bootstrap bootstrap/another_user_with_the_key_is_nobody"
  "accept_any_token bootstrap bootstrap/rubbish"
  "accept_keeps_silent bootstrap bootstrap/silent_processes_fill_the_queue"
  "accept_late bootstrap bootstrap/silent_processes_fill_the_queue"
  "accept_without_end bootstrap bootstrap/another_user_connects_without_end"
  "welcome_not_awaited bootstrap bootstrap/a_token_that_comes_too_late"
  "rank_silent bootstrap bootstrap/nobody_is_waited_for_when_a_rank_is_missing"
  "rank_twice bootstrap bootstrap/two_that_say_they_are_one_rank"
  "root_of_any_user bootstrap member/the_name_is_taken_by_another_user"
  "block_any_size bootstrap member/a_block_of_another_size"
  "block_not_sealed bootstrap member/a_block_that_can_be_made_shorter"
  "block_unasked bootstrap member/a_descriptor_with_a_refusal"
  "block_two bootstrap member/no_block_or_two"
  "oob_any_user oob oob/another_user_asks"
  "oob_any_user_wakes oob oob/another_user_says_look"
  "oob_any_process oob oob/another_process_asks_for_the_rank"
  "oob_any_entry oob oob/what_makes_no_sense"
  "oob_any_length oob oob/what_makes_no_sense"
  "oob_any_size oob oob/what_makes_no_sense"
  "oob_any_version oob oob/what_makes_no_sense"
  "oob_first_of_many oob oob/more_descriptors_than_pieces"
  "oob_keeps oob oob/another_user_gives"
  "oob_no_filter oob oob/a_flood"
  "oob_no_end oob oob/a_flood_without_end"
  "oob_any_receiver oob oob/another_number"
  "watch_by_id peer_process peer_process/another_number_is_another_process"
  "watch_any_descriptor peer_process peer_process/its_descriptor*"
  "watch_not_counted peer_process peer_process/one_descriptor_however_many_watch"
  "watch_forgets peer_process peer_process/gone_before_it_is_watched")
if(CMAKE_HOST_SYSTEM_VERSION VERSION_GREATER_EQUAL 6.9) # before, no process descriptor can be told from another
  list(APPEND mutants "watch_any_process peer_process peer_process/its_descriptor_is_another_process")
else()
  set_property(GLOBAL APPEND PROPERTY mutants_used watch_any_process)
endif()
if(NOT SLIPRING_SANITIZE)
  foreach(row IN LISTS mutants)
    separate_arguments(row)
    list(POP_FRONT row mutant program filter)
    program(strangers_mutant_${mutant} ${sources_${program}} strangers_people.c MUTANT ${mutant} LIBS slr_criterion slr_base)
    target_link_options(strangers_mutant_${mutant} PRIVATE ${wrapped})
    target_compile_options(strangers_mutant_${mutant} PRIVATE -w -DTIMEOUT_MS=3000 -DPATIENCE_MS=6000) # quick
    add_test(NAME strangers_mutant_${mutant} COMMAND strangers_mutant_${mutant} --jobs 1 --filter "${filter}")
    set_tests_properties(strangers_mutant_${mutant} PROPERTIES TIMEOUT 100 LABELS strangers WILL_FAIL TRUE)
  endforeach()
endif()

# Whole programs.
foreach(name among watches)
  program(strangers_${name} strangers_${name}.c LIBS player ranks cudart nccl)
endforeach()

set(both) # ranks use the ring
foreach(rank 0 1)
  list(APPEND both --has "\"event\":\"substitute\".*\"crank\":${rank},.*\"reason\":\"ring\"")
endforeach()
set(fault ${fault_sh} --set SLIPRING_MIN_BYTES=0)
set(came --has "\"event\":\"strangers\",\"crank\":0,\"connections\":[1-9]")
run(strangers_silent 90 ${fault} ${came} ${both} PROCESSES 2 LAUNCH --seconds 60 PLAY strangers_among 1)
run(strangers_silent_other_user 90 ${fault} ${came} ${both} PROCESSES 2 LAUNCH --seconds 60 PLAY strangers_among 1 other)
run(strangers_crowd 90 ${fault} ${came} ${both} PROCESSES 2 LAUNCH --seconds 60 PLAY strangers_among 4300)
run(strangers_crowd_other_user 90 ${fault} ${came} ${both} PROCESSES 2 LAUNCH --seconds 60 PLAY strangers_among 4300 other)
run(strangers_flood 90 ${fault} --hasnt "registration_slow" --set SLIPRING_REGISTER_TIMEOUT=3s ${both} PROCESSES 2 LAUNCH --seconds 60
  PLAY strangers_among 4 other flood)
run(strangers_shared_watches 90 ${fault} --set SOFTGPU_DEVICES=8 --set SLIPRING_SLOT_BYTES=64K ${both} PROCESSES 8 LAUNCH --seconds 60
  PLAY strangers_watches)
