# SPDX-License-Identifier: Apache-2.0
# SLIPRING_CALLERS: the names of call sites, by NVTX ranges and by frames.
set(callers ${PROJECT_SOURCE_DIR}/plugin/callers)
program(names test_names.c ${callers}/names.c UNIT)
program(ranges test_ranges.c ${callers}/injection.c UNIT)
set(sources callers.c injection.c names.c)
list(TRANSFORM sources PREPEND ${callers}/)
program(callers test_callers.c ${sources} UNIT)

# The programs: with NVTX's headers, where there are any, and with a stand-in for them.
program(named named.c LIBS ranks cudart cublas cublasLt nccl)
set(kinds named)
if(SLIPRING_NVTX_INCLUDE)
  program(named_real named.c named_abi.c LIBS ranks cudart cublas cublasLt nccl)
  target_include_directories(named_real SYSTEM PRIVATE ${SLIPRING_NVTX_INCLUDE})
  target_compile_definitions(named_real PRIVATE TEST_REAL_NVTX)
  list(APPEND kinds named_real)
endif()
foreach(kind ${kinds}) # so that frames of the program have names
  set_target_properties(${kind} PROPERTIES ENABLE_EXPORTS ON)
endforeach()

if(NOT TARGET slipring-report)
  return()
endif()
set(named_sh ${CMAKE_CURRENT_SOURCE_DIR}/symmetry_run.sh --set SLIPRING_ALLOC_MIN=4K --set SLIPRING_MIN_BYTES=16K)
set(named_env REPORT_TOOL=$<TARGET_FILE:slipring-report>)
set(tool NVTX_INJECTION64_PATH=$<TARGET_FILE:slipring>)

set(nvtx --set SLIPRING_CALLERS=nvtx --set ${tool})
set(ranges "step * > layer 0 > lib:attn" "step * > layer 1 > lib:attn" "step * > layer 2 > lib:attn")
foreach(kind ${kinds})
  # Each call of the iteration has its layer, in every step; their call site has all of them, and so has a shape.
  list(JOIN ranges "', '" all_ranges)
  set(layers --line "1 phase: period == 3" --line "1 site: decision == 'ring' and shard == 16384 and callers == ['${all_ranges}']")
  foreach(site 0 1 2)
    list(GET ranges ${site} range)
    list(APPEND layers --line "9 caller_place: id == ${site} and call % 3 == (${site} + 1) % 3"
      --line "1 caller_place: id == ${site} and caller == '${range}' and call == ${site} + 25"
      --line "1 caller_place: id == ${site} and caller == 'step 3 > layer ${site} > lib:attn'")
  endforeach()
  run(named_${kind}_layers 120 ${named_sh} ${nvtx} ${layers} --line "27 caller_place: True"
    --line "1 caller: caller == 'step * > layer 2 > lib:attn' and reason == 'ring' and shard == 16384"
    --line "1 caller: caller == 'step * > layer 2 > norm' and reason == 'below_min_bytes' and (op, count, dtype, shard, in_place) == ('allgather', 64, 'fp32', 256, 0)"
    --line "9 caller: caller.endswith(' > norm')" --line "1 caller: caller == 'step * > grad' and op == 'reducescatter'"
    --hasnt "callers_off" -- $<TARGET_FILE:${kind}> 2 layers 30 ENV ${named_env})
  # The ranges are those of the call, not of the group's end.
  run(named_${kind}_group 120 ${named_sh} ${nvtx} --line "1 caller_place: id == 1 and caller == 'step * > layer 1'"
    --line "0 caller: 'layer' not in caller" --line "0 caller_place: caller.startswith('step ') and 'layer' not in caller" -- $<TARGET_FILE:${kind}> 2 group 20 ENV ${named_env})
  # Names that a log has to escape; the lines are whole, and eight differ from each other.
  run(named_${kind}_odd 120 ${named_sh} ${nvtx} --line "2 caller: caller == 'x' * 127" --line "2 caller: caller == '\\x01\\x1b\\x5b31m\\r\\n\\t\"\\\\ \\x7f'"
    --line "2 caller: caller == '\\ufffd\\ufffd\\ufffd('" --line "2 caller: caller == '(no name)'" --line "2 caller: caller == 'gr\\xf6\\xdfer \\u20ac'"
    --line "2 caller: caller.startswith('... > deep ') and caller.endswith('deep 61 > deep 62 > ...')" --line "2 caller: caller == '(no range)'"
    --line "2 caller: caller == 'after 1'" --line "16 caller: True" --line "1 caller: caller == 'after 1' and reason == 'ring'" --hasnt truncated -- $<TARGET_FILE:${kind}> 2 odd ENV ${named_env})
endforeach()
# 300 shapes; one line says that not all have names.
run(named_many 120 ${named_sh} ${nvtx} --line "256 caller: caller == 'size ' + str(count)" --line "256 caller: True" --line "1 callers_full: shapes == 256" -- $<TARGET_FILE:named> 2 many ENV ${named_env})

# Nothing is named by default, with a value that is none, and when the tool is another one or slipring is switched off.
set(none --without nobody --line "0 caller: True" --line "0 caller_place: True")
run(named_off 120 ${named_sh} --set ${tool} ${none} --line "0 callers_off: True" -- $<TARGET_FILE:named> 2 layers 20 ENV ${named_env})
run(named_bad_value 120 ${named_sh} --set ${tool} --set SLIPRING_CALLERS=nvtx3 ${none}
  --line "2 setting: (name, value, expected) == ('SLIPRING_CALLERS', 'nvtx3', 'one of off, nvtx, stack')" -- $<TARGET_FILE:named> 2 layers 20 ENV ${named_env})
run(named_no_tool 120 ${named_sh} --set SLIPRING_CALLERS=nvtx --line "1 callers_off: level == 'warn' and tool == ''" --line "0 caller: caller != '(no range)'"
  -- $<TARGET_FILE:named> 2 layers 20 ENV ${named_env})
if(TARGET nvtx_tool)
  run(named_other_tool 120 ${named_sh} --set SLIPRING_CALLERS=nvtx --set NVTX_INJECTION64_PATH=$<TARGET_FILE:nvtx_tool> --line "1 callers_off: tool.endswith('nvtx_tool.so')"
    --line "0 caller: caller != '(no range)'" -- $<TARGET_FILE:named_real> 2 layers 20 ENV ${named_env})
endif()
run(named_silent 120 ${named_sh} --set SLIPRING_LOG=warn ${nvtx} ${none} --line "1 callers_off: 'level info' in msg" -- $<TARGET_FILE:named> 2 layers 20 ENV ${named_env})

# Frames: the innermost of the program, which has exported them; each place its own site.
run(named_stack 120 ${named_sh} --set SLIPRING_CALLERS=stack --line "1 caller_place: id == 0 and '< first_place+0x' in caller"
  --line "1 caller_place: id == 1 and '< second_place+0x' in caller" --line "2 caller_place: True" --line "2 caller: reason == 'ring' and '(named) < ' in caller"
  --line "0 caller: 'slipring' in caller or 'libnccl' in caller" -- $<TARGET_FILE:named> 2 plain 40 ENV ${named_env})
