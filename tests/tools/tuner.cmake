# SPDX-License-Identifier: Apache-2.0
# The NCCL tuner plugin: as NCCL loads it, on the software GPU, tune files, and slipring tune.
find_package(Threads REQUIRED)
set(here ${CMAKE_CURRENT_SOURCE_DIR})
set(plugin ${PROJECT_SOURCE_DIR}/plugin)
function(tuner_program name)
  add_executable(tuner_${name} ${ARGN})
  target_include_directories(tuner_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(tuner_${name} PRIVATE slipring_cuda_headers Threads::Threads ${CMAKE_DL_LIBS})
endfunction()
tuner_program(load tuner_load.c)
tuner_program(defaults tuner_defaults.c)
tuner_program(broken tuner_broken.c)
tuner_program(fuzz_table tuner_fuzz_table.c ${plugin}/tuner/tune_site.c ${plugin}/tuner/tune_table.c
  ${plugin}/tuner/tune_text.c ${plugin}/util/consumer.c ${plugin}/util/nccl_names.c)
target_link_libraries(tuner_fuzz_table PRIVATE slr_base)

# tuner_test(NAME COMMAND...)
function(tuner_test name)
  add_test(NAME tuner_${name} COMMAND ${ARGN})
  set_tests_properties(tuner_${name} PROPERTIES TIMEOUT 120 LABELS "tuner;preload" ENVIRONMENT
    "SOFTGPU_DIR=${SOFTGPU_DIR};SLIPRING_LIB=$<TARGET_FILE:slipring>;TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST}")
endfunction()
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
tuner_test(load $<TARGET_FILE:tuner_load> ${library})
tuner_test(load_preloaded ${CMAKE_COMMAND} -E env "LD_PRELOAD=${first}:${library}" $<TARGET_FILE:tuner_load> ${library})
tuner_test(load_copies ${CMAKE_COMMAND} -E env "LD_PRELOAD=${first}:${library}" $<TARGET_FILE:tuner_load> ${copy} ${library})
tuner_test(load_copies_alone $<TARGET_FILE:tuner_load> ${copy} ${library})
tuner_test(fuzz_table $<TARGET_FILE:tuner_fuzz_table> 20000 ${here}/corpus/plain ${here}/corpus/forms ${here}/corpus/wrong ${here}/corpus/reversed ${here}/corpus/sites)
find_program(TUNE_CLANG NAMES clang clang-14 clang-15 clang-16 clang-18 clang-19)
if(TUNE_CLANG AND NOT SLIPRING_SANITIZE)
  tuner_test(libfuzzer ${here}/tuner_libfuzzer.sh ${TUNE_CLANG} ${PROJECT_SOURCE_DIR} ${here}/corpus 20000
    "${SLIPRING_CUDA_INCLUDE}" "${SLIPRING_NCCL_INCLUDE}")
  set_tests_properties(tuner_libfuzzer PROPERTIES SKIP_RETURN_CODE 77)
endif()

# On the software GPU. Its NCCL fails the call when ranks do not choose alike.
function(tuner_e2e name)
  tuner_test(${name} ${PROJECT_SOURCE_DIR}/tests/programs/run.sh --set SLIPRING_TUNE_FILE=${a} ${ARGN})
endfunction()
set(small --bytes 4096,65536 --rounds 6)
set(tuned --has "\"event\":\"tuned\".*\"func\":\"AllGather\".*\"algo\":\"Ring\",\"proto\":\"LL128\",\"channels\":4,\"from\":\"${a}:2\""
  --has "\"event\":\"tuned\".*\"func\":\"AllReduce\".*\"algo\":\"Tree\",\"proto\":\"LL\"")
set(untuned --hasnt "\"event\":\"tuned\"")
tuner_e2e(preloaded --set NCCL_TUNER_PLUGIN=${library} ${tuned} --has "\"event\":\"tuner\".*\"interposed\":1"
  --hasnt "tune_differs|plugin_copy" -- ${collectives} ${small} --ranks 3)
tuner_e2e(static --set NCCL_TUNER_PLUGIN=STATIC_PLUGIN ${tuned} -- ${collectives} ${small})
tuner_e2e(named --plain --set NCCL_TUNER_PLUGIN=${library} ${tuned} --has "\"event\":\"tuner\".*\"interposed\":0"
  --hasnt "\"event\":\"(communicator|pass|substitute|summary|count|blocks)\"" -- ${collectives} ${small})
tuner_e2e(copy --set NCCL_TUNER_PLUGIN=${copy} ${tuned} --has "\"event\":\"plugin_copy\"" --has "\"event\":\"tuner\".*\"interposed\":1"
  -- ${collectives} ${small})
tuner_e2e(group --set NCCL_TUNER_PLUGIN=${library} ${tuned} -- ${collectives} ${small} --group)
tuner_e2e(idle --set NCCL_TUNER_PLUGIN=${library} --set SLIPRING_TUNE_FILE= ${untuned} --hasnt "tune_differs" -- ${collectives} ${small}
  --rank-env 1:NCCL_TUNER_PLUGIN=none)
# Ranks that would not decide alike: nobody does, and the calls still work.
foreach(odd "other:SLIPRING_TUNE_FILE=${b}" "no_file:SLIPRING_TUNE_FILE=/nonexistent" "no_tuner:NCCL_TUNER_PLUGIN=none"
    "setting:SLIPRING_TUNE_EXPLORE=2")
  string(REGEX MATCH "^[a-z_]+" kind ${odd})
  string(REGEX REPLACE "^[a-z_]+:" "" variable ${odd})
  tuner_e2e(differs_${kind} --set NCCL_TUNER_PLUGIN=${library} ${untuned} --has "\"event\":\"tune_differs\".*\"crank\":0,\"peer\":1"
    -- ${collectives} ${small} --ranks 3 --rank-env 1:${variable})
endforeach()
tuner_e2e(differs_confirming --set NCCL_TUNER_PLUGIN=${library} --set SLIPRING_TUNE_EXPLORE=4 ${untuned} --hasnt "\"event\":\"explored\""
  --has "\"event\":\"tune_differs\".*\"crank\":0,\"peer\":1" -- ${collectives} ${small} --ranks 3 --rank-env 1:SLIPRING_TUNE_FILE=)
tuner_e2e(differs_off --set NCCL_TUNER_PLUGIN=${library} ${untuned} --has "\"event\":\"tune_off\"" -- ${collectives} ${small}
  --rank-env 1:SLIPRING_ENABLE=off)
tuner_e2e(off --set NCCL_TUNER_PLUGIN=${library} --set SLIPRING_ENABLE=off ${untuned} -- ${collectives} ${small})
# Communicators of one process, of groups, and split ones have their tuner too.
tuner_program(comms tuner_comms.c)
target_link_libraries(tuner_comms PRIVATE softgpu_cudart softgpu_nccl)
target_link_options(tuner_comms PRIVATE -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs)
set_target_properties(tuner_comms PROPERTIES SKIP_BUILD_RPATH ON)
foreach(way all group split threads)
  tuner_e2e(comms_${way} --set NCCL_TUNER_PLUGIN=${library} --has "\"event\":\"tuned\".*\"from\":\"${a}:2\"" --hasnt "tune_off|tune_differs"
    -- $<TARGET_FILE:tuner_comms> ${way})
endforeach()

if(TARGET slipring-tune)
  tuner_test(broken ${here}/tuner_broken.sh $<TARGET_FILE:tuner_broken> $<TARGET_FILE:slipring-tune> $<TARGET_FILE:tuner_defaults> ${library})
  tuner_test(tune ${here}/tune.sh ${PROJECT_SOURCE_DIR}/LD_PRELOAD/slipring ${CMAKE_BINARY_DIR} ${collectives})
  tuner_test(confirm ${here}/confirm.sh ${PROJECT_SOURCE_DIR}/LD_PRELOAD/slipring ${CMAKE_BINARY_DIR})
  set_tests_properties(tuner_broken tuner_tune PROPERTIES LABELS "tuner;preload;slow") # under TSan
endif()
set_tests_properties(tuner_load_copies tuner_load_copies_alone PROPERTIES LABELS "tuner;preload;slow")
