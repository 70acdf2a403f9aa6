# SPDX-License-Identifier: Apache-2.0
# Libraries whose calls reach the driver past what is preloaded: see past.c. Sanitizers do not stand RTLD_DEEPBIND.

program(callers_past_bound past_library.c MODULE LIBS cuda)
program(callers_past_looks_up past_library.c MODULE)
target_compile_definitions(callers_past_looks_up PRIVATE LOOKS_UP)
foreach(name bound looks_up)
  target_link_options(callers_past_${name} PRIVATE -Wl,-z,lazy -Wl,--unresolved-symbols=ignore-all)
  set_target_properties(callers_past_${name} PROPERTIES SKIP_BUILD_RPATH ON)
endforeach()

program(callers_past past.c LIBS ranks cudart nccl)
set_target_properties(callers_past PROPERTIES ENABLE_EXPORTS ON)

# A shard takes 7 ms, so that what is not waited for is not there.
set(slow --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC_MIN=4K --set SOFTGPU_TIMING=1 --set SOFTGPU_LINK_GBS=0.01)

set(bound ${run_sh} ${slow} --set PAST_LIBRARY=$<TARGET_FILE:callers_past_bound>)
set(looks_up ${run_sh} ${slow} --set PAST_LIBRARY=$<TARGET_FILE:callers_past_looks_up>)
set(ring --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\",\"op\":\"allgather\"")
set(found --has "\"event\":\"bypassed\"")
set(nothing --hasnt "\"event\":\"bypassed\"" --hasnt "\"reason\":\"bypassed\"")
set(all opened,before,first,lazily,constructor,unseen,freed,streams,stream)
run(callers_past_bound 120 ${bound} ${ring} ${found} EACH callers_past ${all} 2)
run(callers_past_looks_up 120 ${looks_up} ${ring} ${found} EACH callers_past ${all} 2)
run(callers_past_room 120 ${bound} ${ring} ${found} --set SOFTGPU_MEM_BYTES=67108864 --set SLIPRING_ALLOC_FRACTION=100 --set SLIPRING_SLOT_BYTES=1M
  EACH callers_past room 2)
run(callers_past_captured 120 ${bound} ${found} --has "\"reason\":\"stream_capture\"" EACH callers_past captured 2)
run(callers_past_launched 120 ${bound} ${found} --set SLIPRING_PROTOCOL=pull --has "\"reason\":\"stream_capture\"" EACH callers_past launched 2)
run(callers_past_recorded 120 ${bound} ${ring} ${found} --set SLIPRING_PROTOCOL=pull --has "\"reason\":\"graph\"" EACH callers_past recorded 2)
run(callers_past_space 120 ${bound} ${ring} ${found} --has "\"symbol\":\"dlmopen\"" EACH callers_past space 2)
run(callers_past_usual 120 ${bound} ${ring} ${nothing} --has "\"reason\":\"host_observes|\"reason\":\"other_operation" EACH callers_past usual 2)
run(callers_past_usual_looks_up 120 ${looks_up} ${ring} ${nothing} EACH callers_past usual 2)
run(callers_past_harmless 120 ${bound} ${ring} ${nothing} EACH callers_past harmless 2)
run(callers_past_registered 120 ${bound} ${ring} ${found} --set SLIPRING_REGISTER_TIMEOUT=300 --hasnt registration_slow EACH callers_past registered 2)
run(callers_past_freed_at_once 120 ${bound} ${ring} ${found} --misuse-ok EACH callers_past freed-at-once 2)

# Nothing is preloaded.
program(callers_late callers_late.c)
program(callers_past_module past.c MODULE LIBS ranks cudart nccl)
target_compile_definitions(callers_past_module PRIVATE main=module_main)
target_compile_options(callers_past_module PRIVATE -Wno-missing-prototypes)
set_target_properties(callers_past_module PROPERTIES C_VISIBILITY_PRESET default)
run(callers_past_late 120 ${run_sh} --plain ${slow} ${ring} ${found} -- $<TARGET_FILE:callers_late> $<TARGET_FILE:slipring>
  $<TARGET_FILE:callers_past_bound> $<TARGET_FILE:callers_past_module> usual 2 $<TARGET_FILE:callers_past_bound>)

run(callers_mutant_past_not_joined 120 MUTANT past_not_joined ${bound} EACH callers_past before,first,unseen 2)
run(callers_mutant_past_not_before 120 MUTANT past_not_before ${bound} EACH callers_past constructor 2)
run(callers_mutant_past_not_counted 120 MUTANT past_not_counted ${bound} EACH callers_past unseen 2)
run(callers_mutant_past_lazily 120 MUTANT past_lazily ${bound} EACH callers_past lazily 2)
run(callers_mutant_past_space 120 MUTANT past_space ${bound} ${found} EACH callers_past space 2)
run(callers_mutant_past_never_seen 120 MUTANT past_never_seen ${bound} ${nothing} EACH callers_past harmless 2)
run(callers_mutant_past_exported 120 MUTANT past_exported ${bound} EACH callers_past freed 2)
run(callers_mutant_past_export_stays 120 MUTANT past_export_stays ${bound} EACH callers_past freed 2)
run(callers_mutant_past_named 120 MUTANT past_named ${bound} --misuse-ok EACH callers_past freed-at-once 2)
run(callers_mutant_past_kept 120 MUTANT past_kept ${bound} --set SOFTGPU_MEM_BYTES=67108864 --set SLIPRING_ALLOC_FRACTION=100
  --set SLIPRING_SLOT_BYTES=1M EACH callers_past room 2)
run(callers_mutant_past_order_late 120 MUTANT past_order_late ${bound} EACH callers_past streams 2)
run(callers_mutant_past_order_before 120 MUTANT past_order_before ${bound} EACH callers_past stream 2)
run(callers_mutant_past_recorded 120 MUTANT past_recorded ${bound} --set SLIPRING_PROTOCOL=pull EACH callers_past recorded 2)
run(callers_mutant_past_capture 120 MUTANT past_capture ${bound} EACH callers_past captured 2)
run(callers_mutant_past_graphs 120 MUTANT past_graphs ${bound} --set SLIPRING_PROTOCOL=pull EACH callers_past launched 2)
