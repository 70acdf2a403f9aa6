# SPDX-License-Identifier: Apache-2.0
# The block cache under whole programs on the software GPU (../programs/run.sh). Every program also passes without slipring.
foreach(name churn ipc sites captured idle ordered)
  program(memory_${name} memory_${name}.c LIBS ranks cudart cublas cublasLt nccl)
endforeach()
program(memory_cases memory.c LIBS ranks cudart cublas cublasLt nccl)

# The same three sizes in every iteration, freed and allocated around each gather.
set(churn $<TARGET_FILE:memory_churn>)
set(small --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC_MIN=64K --set SLIPRING_SLOT_BYTES=256K)
set(hit --has "\"event\":\"blocks\".*\"hits\":[1-9]")
set(iterations 1000)
if(SLIPRING_SANITIZE)
  set(iterations 300)
endif()
foreach(mode collective all)
  foreach(n 2 4)
    run(memory_churn_${mode}_${n} 200 ${run_sh} ${small} --set SLIPRING_ALLOC=${mode} ${hit} -- ${churn} ${n} ${iterations} stable)
  endforeach()
  run(memory_churn_different_${mode} 200 ${run_sh} ${small} --set SLIPRING_ALLOC=${mode} ${hit} -- ${churn} 2 ${iterations} any different)
endforeach()
# Else the test shows nothing.
run(memory_churn_off 200 ${run_sh} ${small} --set SLIPRING_ALLOC=off --hasnt "\"event\":\"blocks\"" -- ${churn} 2 200 moving)
run(memory_churn_nccl 200 ${run_sh} ${small} --set SLIPRING_ALLOC=collective --set SLIPRING_MIN_BYTES=1G --hasnt "\"hits\":[1-9]"
  -- ${churn} 2 200 moving)
run(memory_churn_plain 200 ${run_sh} --plain -- ${churn} 2 200 moving)

# Staging memory does not grow with the number of call sites.
run(memory_sites 120 ${run_sh} --set SLIPRING_MIN_BYTES=0 --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\",\"op\":\"allgather\""
  -- $<TARGET_FILE:memory_sites> 2)

# Each case in each mode. out-of-memory has a device of 64 MiB.
foreach(mode off collective all plain)
  set(set --set SLIPRING_ALLOC=${mode})
  if(mode STREQUAL plain)
    set(set --plain)
  endif()
  foreach(case random-sizes free-while-in-use mem-info device-reset out-of-memory free-async capture)
    set(device)
    if(case STREQUAL out-of-memory)
      set(device --set SOFTGPU_MEM_BYTES=67108864 --set SLIPRING_ALLOC_FRACTION=100)
    endif()
    run(memory_${case}_${mode} 120 ${run_sh} ${set} ${device} -- $<TARGET_FILE:memory_cases> ${case})
  endforeach()
  run(memory_double-free_${mode} 60 ${run_sh} ${set} --misuse-ok -- $<TARGET_FILE:memory_cases> double-free)
  run(memory_ipc_${mode} 120 ${run_sh} ${set} --set SLIPRING_MIN_BYTES=0 -- $<TARGET_FILE:memory_ipc> 3)
endforeach()

# Random sizes, at most 24 MiB in use (26 with classes), 16 MiB kept: they fit 42 MiB and one block of 6 MiB without ever being given
# back for want of memory. With a budget beyond the device's memory that happens, and the program does not notice.
set(all --set SLIPRING_ALLOC=all --set SLIPRING_ALLOC_FRACTION=100)
run(memory_budget_kept 120 ${run_sh} ${all} --set SLIPRING_ALLOC_BYTES=16M --set SOFTGPU_MEM_BYTES=50331648 ${hit}
  --has "\"evictions\":[1-9].*\"trims\":0" -- $<TARGET_FILE:memory_cases> random-sizes)
run(memory_budget_beyond 120 ${run_sh} ${all} --set SLIPRING_ALLOC_BYTES=1T --set SOFTGPU_MEM_BYTES=29360128 ${hit} --has "\"trims\":[1-9]"
  -- $<TARGET_FILE:memory_cases> random-sizes)
# After the captures have ended, blocks are kept as before.
run(memory_capture_ends 60 ${run_sh} --set SLIPRING_ALLOC=all --has "\"event\":\"blocks\",.*\"hits\":3,\"misses\":2,"
  -- $<TARGET_FILE:memory_cases> capture)

# Beside another thread's capture. What the peers have mapped is pinned: with pull what is sent, with put what is received.
foreach(mode thread-local relaxed global)
  foreach(protocol pull put)
    run(memory_captured_${mode}_${protocol} 90 ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_PROTOCOL=${protocol}
      --has "\"event\":\"substitute\"" --has "\"mapped\":[1-9]" -- $<TARGET_FILE:memory_captured> ${mode})
  endforeach()
  run(memory_captured_${mode}_plain 90 ${run_sh} --plain -- $<TARGET_FILE:memory_captured> ${mode})
endforeach()

# Idle memory goes back, also what peers have mapped.
foreach(protocol pull put)
  run(memory_idle_${protocol} 120 ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_PROTOCOL=${protocol} --set SLIPRING_ALLOC_IDLE=200ms
    --has "\"mapped\":[1-9]" --has "\"event\":\"blocks\".*\"idle\":[2-9]" -- $<TARGET_FILE:memory_idle> 3)
endforeach()
run(memory_idle_all 120 ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_ALLOC=all --set SLIPRING_ALLOC_IDLE=200ms
  --has "\"event\":\"blocks\".*\"idle\":[2-9]" -- $<TARGET_FILE:memory_idle> 2)
run(memory_idle_plain 120 ${run_sh} --plain -- $<TARGET_FILE:memory_idle> 2)

# In the order of streams, behind gathers from such memory. short has a device of 64 MiB; access uses four devices.
set(ordered ${run_sh} --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=256K --set SOFTGPU_DEVICES=4)
foreach(case books pointers destroyed access overtaken captured short child)
  set(device)
  if(case STREQUAL short)
    set(device --set SOFTGPU_MEM_BYTES=67108864 --set SLIPRING_ALLOC_FRACTION=100)
  endif()
  run(memory_ordered_${case} 120 ${ordered} ${device} --has "\"event\":\"blocks\".*\"async\":[1-9]" -- $<TARGET_FILE:memory_ordered> ${case})
  run(memory_ordered_${case}_plain 120 ${ordered} ${device} --plain -- $<TARGET_FILE:memory_ordered> ${case})
endforeach()
foreach(mode collective plain)
  set(plain)
  if(mode STREQUAL plain)
    set(plain --plain)
  endif()
  run(memory_ordered_twice_${mode} 60 ${ordered} ${plain} --misuse-ok -- $<TARGET_FILE:memory_ordered> twice)
endforeach()
# What nobody gathers, and with SLIPRING_ALLOC=off everything, is the driver's; and what would be staged all the same.
run(memory_ordered_nccl 120 ${ordered} --set SLIPRING_MIN_BYTES=1G --hasnt "\"async\":[1-9]" -- $<TARGET_FILE:memory_ordered> books)
run(memory_ordered_off 120 ${ordered} --set SLIPRING_ALLOC=off --hasnt "\"async\":[1-9]" -- $<TARGET_FILE:memory_ordered> books)
run(memory_ordered_one_process 60 ${ordered} --has "\"event\":\"substitute\"" --hasnt "\"async\":[1-9]" -- $<TARGET_FILE:memory_ordered> one-process)
run(memory_ordered_one_process_plain 60 ${ordered} --plain -- $<TARGET_FILE:memory_ordered> one-process)
run(memory_mutant_pool_one_process 60 WITH pool_one_process ${ordered} --has "\"async\":[1-9]" -- $<TARGET_FILE:memory_ordered> one-process)
run(memory_mutant_pool_untold 60 WITH pool_untold ${ordered} --status 1 -- $<TARGET_FILE:memory_ordered> pointers)
run(memory_mutant_pool_unasked 60 WITH pool_unasked ${ordered} --status 1 -- $<TARGET_FILE:memory_ordered> books)
run(memory_mutant_pool_unreached 60 WITH pool_unreached ${ordered} --misuse-ok --status 3 -- $<TARGET_FILE:memory_ordered> access)
run(memory_mutant_pool_unordered 60 WITH pool_unordered ${ordered} --status 1 -- $<TARGET_FILE:memory_ordered> overtaken)
