# SPDX-License-Identifier: Apache-2.0
# slipring report and slipring trace, on synthetic logs and on those of a real program.
if(NOT TARGET slipring-report)
  return()
endif()

foreach(what figures folded widths written scatters tried advice json page broken versions runs endless verdicts record record_tried record_scatters record_reduces record_hosts record_callers events fields)
  add_test(NAME report_${what} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/report.sh ${what})
  set_tests_properties(report_${what} PROPERTIES TIMEOUT 240 LABELS report ENVIRONMENT
    "SLIPRING_REPORT=$<TARGET_FILE:slipring-report>;SLIPRING_TRACE_TOOL=$<TARGET_FILE:slipring-trace>;LAUNCHER=${PROJECT_SOURCE_DIR}/LD_PRELOAD/slipring;SLIPRING_LIB=$<TARGET_FILE:slipring>;SOFTGPU_DIR=${SOFTGPU_DIR};AG_GEMM=$<TARGET_FILE:ag_gemm>;SCATTER=$<TARGET_FILE:scatter>;SITES=$<TARGET_FILE:symmetry_sites>;NAMED=$<TARGET_FILE:named>;COLLECTIVES=$<TARGET_FILE:collectives>;GATHERS=$<TARGET_FILE:gather_matrix>")
endforeach()
set_tests_properties(report_broken PROPERTIES COST 30)

# What a report begins with, of a job of two ranks that goes well or badly.
program(job job.c LIBS ranks cudart cublas nccl)
add_test(NAME report_jobs COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/jobs.py --launcher ${PROJECT_SOURCE_DIR}/LD_PRELOAD/slipring --lib $<TARGET_FILE:slipring> --softgpu ${SOFTGPU_DIR}
  --job $<TARGET_FILE:job> --other $<TARGET_FILE:fault_other_version> --report $<TARGET_FILE:slipring-report>)
set_tests_properties(report_jobs PROPERTIES TIMEOUT 240 COST 15 LABELS report ENVIRONMENT "TEST_PRELOAD_FIRST=${SLIPRING_PRELOAD_FIRST}")

program(report test_report.c UNIT LIBS slr_logs)
