# SPDX-License-Identifier: Apache-2.0
# caught(MUTANT RANKS CASES [PROGRAM]): each of the cases (see each.sh) of forms_order, or of another program, fails with the mutant.
function(caught mutant ranks cases)
  if(SLIPRING_SANITIZE)
    return()
  endif()
  set(program forms_order)
  if(ARGN)
    set(program ${ARGN})
  endif()
  add_test(NAME form_mutant_${mutant} COMMAND ${PROJECT_SOURCE_DIR}/tests/order/each.sh $<TARGET_FILE:${program}> ${cases} ${ranks} --
    ${run} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=16K --set SLIPRING_FLOP_PER_BYTE=0 --set SLIPRING_GRAPHS=off)
  set_tests_properties(form_mutant_${mutant} PROPERTIES TIMEOUT 300 LABELS form
    ENVIRONMENT "${forms_env};SLIPRING_LIB=$<TARGET_FILE:mutant_${mutant}>;MUTANT=1")
endfunction()
