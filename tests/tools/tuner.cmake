# SPDX-License-Identifier: Apache-2.0
# The NCCL tuner plugin: as NCCL loads it, on the software GPU, tune files, and slipring tune.
set(here ${CMAKE_CURRENT_SOURCE_DIR})
set(plugin ${PROJECT_SOURCE_DIR}/plugin)
program(tuner_load tuner_load.c)
program(tuner_defaults tuner_defaults.c)
program(tuner_broken tuner_broken.c)
program(tuner_fuzz_table tuner_fuzz_table.c ${plugin}/tuner/tune_site.c ${plugin}/tuner/tune_table.c
  ${plugin}/util/consumer.c ${plugin}/abi/nccl_common.c LIBS slr_base)

set(library $<TARGET_FILE:slipring>)
set(collectives $<TARGET_FILE:collectives>)
set(copy ${CMAKE_CURRENT_BINARY_DIR}/copy/libslipring-copy.so)
add_custom_command(OUTPUT ${copy} DEPENDS slipring
  COMMAND ${CMAKE_COMMAND} -E copy ${library} ${copy} VERBATIM)
add_custom_target(tuner_copy ALL DEPENDS ${copy})
configure_file(a.tune a.tune COPYONLY)
configure_file(b.tune b.tune COPYONLY)
set(a ${CMAKE_CURRENT_BINARY_DIR}/a.tune)
set(b ${CMAKE_CURRENT_BINARY_DIR}/b.tune)

set(first "${SLIPRING_PRELOAD_FIRST}")
list(JOIN first ":" first)
run(tuner_load 120 $<TARGET_FILE:tuner_load> ${library} LABELS tuner preload)
run(tuner_load_preloaded 120 ${CMAKE_COMMAND} -E env "LD_PRELOAD=${first}:${library}" $<TARGET_FILE:tuner_load> ${library} LABELS tuner preload)
run(tuner_load_copies 120 ${CMAKE_COMMAND} -E env "LD_PRELOAD=${first}:${library}" $<TARGET_FILE:tuner_load> ${copy} ${library} LABELS tuner preload)
run(tuner_load_copies_alone 120 $<TARGET_FILE:tuner_load> ${copy} ${library} LABELS tuner preload)
run(tuner_fuzz_table 120 $<TARGET_FILE:tuner_fuzz_table> 20000 ${here}/corpus/plain ${here}/corpus/forms ${here}/corpus/wrong ${here}/corpus/reversed
  ${here}/corpus/sites LABELS tuner preload)
find_program(TUNE_CLANG NAMES clang clang-14 clang-15 clang-16 clang-18 clang-19)
if(TUNE_CLANG AND NOT SLIPRING_SANITIZE)
  run(tuner_libfuzzer 120 ${here}/tuner_libfuzzer.sh ${TUNE_CLANG} ${PROJECT_SOURCE_DIR} ${here}/corpus 20000 "${SLIPRING_CUDA_INCLUDE}"
    "${SLIPRING_NCCL_INCLUDE}" LABELS tuner preload PROPERTIES SKIP_RETURN_CODE 77)
endif()

# On the software GPU. Its NCCL fails the call when ranks do not choose alike.
set(tuner ${run_sh} --set SLIPRING_TUNE_FILE=${a})
set(small --bytes 4096,65536 --rounds 6)
set(tuned --has "\"event\":\"tuned\".*\"func\":\"AllGather\".*\"algo\":\"Ring\",\"proto\":\"LL128\",\"channels\":4,\"from\":\"${a}:2\""
  --has "\"event\":\"tuned\".*\"func\":\"AllReduce\".*\"algo\":\"Tree\",\"proto\":\"LL\"")
set(untuned --hasnt "\"event\":\"tuned\"")
run(tuner_preloaded 120 ${tuner} --set NCCL_TUNER_PLUGIN=${library} ${tuned} --has "\"event\":\"tuner\".*\"interposed\":1"
  --hasnt "tune_differs|plugin_copy" -- ${collectives} ${small} --ranks 3 LABELS tuner preload)
run(tuner_static 120 ${tuner} --set NCCL_TUNER_PLUGIN=STATIC_PLUGIN ${tuned} -- ${collectives} ${small} LABELS tuner preload)
run(tuner_named 120 ${tuner} --plain --set NCCL_TUNER_PLUGIN=${library} ${tuned} --has "\"event\":\"tuner\".*\"interposed\":0"
  --hasnt "\"event\":\"(communicator|pass|substitute|summary|count|blocks)\"" -- ${collectives} ${small} LABELS tuner preload)
run(tuner_copy 120 ${tuner} --set NCCL_TUNER_PLUGIN=${copy} ${tuned} --has "\"event\":\"plugin_copy\"" --has "\"event\":\"tuner\".*\"interposed\":1"
  -- ${collectives} ${small} LABELS tuner preload)
run(tuner_group 120 ${tuner} --set NCCL_TUNER_PLUGIN=${library} ${tuned} -- ${collectives} ${small} --group LABELS tuner preload)
run(tuner_idle 120 ${tuner} --set NCCL_TUNER_PLUGIN=${library} --set SLIPRING_TUNE_FILE= ${untuned} --hasnt "tune_differs" -- ${collectives} ${small}
  --rank-env 1:NCCL_TUNER_PLUGIN=none LABELS tuner preload)
# Ranks that would not decide alike: nobody does, and the calls still work.
foreach(odd "other:SLIPRING_TUNE_FILE=${b}" "no_file:SLIPRING_TUNE_FILE=/nonexistent" "no_tuner:NCCL_TUNER_PLUGIN=none"
    "setting:SLIPRING_TUNE_EXPLORE=2")
  string(REGEX MATCH "^[a-z_]+" kind ${odd})
  string(REGEX REPLACE "^[a-z_]+:" "" variable ${odd})
  run(tuner_differs_${kind} 120 ${tuner} --set NCCL_TUNER_PLUGIN=${library} ${untuned} --has "\"event\":\"tune_differs\".*\"crank\":0,\"peer\":1"
    -- ${collectives} ${small} --ranks 3 --rank-env 1:${variable} LABELS tuner preload)
endforeach()
run(tuner_differs_confirming 120 ${tuner} --set NCCL_TUNER_PLUGIN=${library} --set SLIPRING_TUNE_EXPLORE=4 ${untuned} --hasnt "\"event\":\"explored\""
  --has "\"event\":\"tune_differs\".*\"crank\":0,\"peer\":1" -- ${collectives} ${small} --ranks 3 --rank-env 1:SLIPRING_TUNE_FILE= LABELS tuner
  preload)
run(tuner_differs_off 120 ${tuner} --set NCCL_TUNER_PLUGIN=${library} ${untuned} --has "\"event\":\"tune_off\"" -- ${collectives} ${small} --rank-env
  1:SLIPRING_ENABLE=off LABELS tuner preload)
run(tuner_off 120 ${tuner} --set NCCL_TUNER_PLUGIN=${library} --set SLIPRING_ENABLE=off ${untuned} -- ${collectives} ${small} LABELS tuner preload)
# Communicators of one process, of groups, and split ones have their tuner too.
program(tuner_comms tuner_comms.c LIBS cudart nccl)
foreach(way all group split threads)
  run(tuner_comms_${way} 120 ${tuner} --set NCCL_TUNER_PLUGIN=${library} --has "\"event\":\"tuned\".*\"from\":\"${a}:2\""
    --hasnt "tune_off|tune_differs" -- $<TARGET_FILE:tuner_comms> ${way} LABELS tuner preload)
endforeach()

if(TARGET slipring-tune)
  run(tuner_broken 120 ${here}/tuner_broken.sh $<TARGET_FILE:tuner_broken> $<TARGET_FILE:slipring-tune> $<TARGET_FILE:tuner_defaults> ${library}
    LABELS tuner preload slow PROPERTIES COST 20)
  run(tuner_tune 120 ${here}/tune.sh ${PROJECT_SOURCE_DIR}/LD_PRELOAD/slipring ${CMAKE_BINARY_DIR} ${collectives} LABELS tuner preload slow PROPERTIES COST 20)
  run(tuner_confirm 120 ${here}/confirm.sh ${PROJECT_SOURCE_DIR}/LD_PRELOAD/slipring ${CMAKE_BINARY_DIR} LABELS tuner preload)
 # under TSan
endif()
set_tests_properties(tuner_load_copies tuner_load_copies_alone PROPERTIES LABELS "tuner;preload;slow")
