# SPDX-License-Identifier: Apache-2.0
# Mutants: the library with one file of it changed by sed, built beside the real one. A test that no mutant can fail proves nothing.
# mutant(NAME FILE...): FILE is plugin/x.c, kernels/x.c, cache/x.c or interpose/x.c, changed by mutants/NAME.sed; the build fails if that changes nothing in one,
# or if a line of it changes nothing at all.
# That a test can fail is shown once, without sanitizers: in such builds a mutant is built only for a test that asks for it (mutant_needed).
function(mutant name)
  set(script ${CMAKE_CURRENT_SOURCE_DIR}/mutants/${name}.sed)
  set(replaced "")
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE all)
  foreach(file IN LISTS ARGN)
    get_filename_component(base ${file} NAME_WE)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/mutants/${name}/${base}.c)
    add_custom_command(OUTPUT ${source}
      COMMAND ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/mutate.sh ${PROJECT_SOURCE_DIR}/${file} ${source} ${script} ${all}
      DEPENDS ${PROJECT_SOURCE_DIR}/${file} ${script} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/mutate.sh VERBATIM)
    list(APPEND sources ${source})
    list(APPEND replaced ${base})
  endforeach()
  string(REPLACE ";" "|" replaced "${replaced}")
  foreach(part interpose plugin kernels cache)
    list(APPEND objects "$<FILTER:$<TARGET_OBJECTS:slr_${part}>,EXCLUDE,/(${replaced})\\.c\\.o$>")
  endforeach()
  add_library(mutant_${name} SHARED ${sources} ${objects})
  target_link_libraries(mutant_${name} PRIVATE slr_base ${CMAKE_DL_LIBS})
  target_include_directories(mutant_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(mutant_${name} PRIVATE -Wno-unused -Wno-unused-parameter)
  target_link_options(mutant_${name} PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/interpose/exports.map
    -Wl,--as-needed -Wl,-z,nodelete
    -Wl,--strip-debug) # there are some hundred: most of each would be debug information
  set_target_properties(mutant_${name} PROPERTIES LINKER_LANGUAGE C SKIP_BUILD_RPATH ON)
  add_dependencies(mutant_${name} slipring_exports)
  if(SLIPRING_SANITIZE)
    set_target_properties(mutant_${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
endfunction()

# mutant_needed(NAME): for a test that runs with sanitizers, too.
function(mutant_needed name)
  set_target_properties(mutant_${name} PROPERTIES EXCLUDE_FROM_ALL FALSE)
endfunction()

# caught(MUTANT RANKS CASES [PROGRAM]): each of the cases (see each.sh) of forms_order, or of another program, fails with the mutant.
function(caught mutant ranks cases)
  if(SLIPRING_SANITIZE)
    return()
  endif()
  set(program forms_order)
  if(ARGN)
    set(program ${ARGN})
  endif()
  add_test(NAME form_mutant_${mutant} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/each.sh $<TARGET_FILE:${program}> ${cases} ${ranks} --
    ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_FLOP_PER_BYTE=0 --set SLIPRING_GRAPHS=off)
  set_tests_properties(form_mutant_${mutant} PROPERTIES TIMEOUT 300 LABELS form
    ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:mutant_${mutant}>;MUTANT=1")
endfunction()
