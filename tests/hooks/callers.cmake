# SPDX-License-Identifier: Apache-2.0
# Who calls: the same programs reach CUDA, NCCL and cuBLAS by other ways than by being linked to the shared libraries.
set(fuse ../programs/fuse.c LIBS fuse_api ranks)
set(substituted ${run_sh} --set SLIPRING_MIN_BYTES=0 --has "\"event\":\"substitute\"" --hasnt "\"event\":\"pass\",\"op\":\"allgather\"")
set(fused --has "\"event\":\"fused\"" --hasnt "\"event\":\"joined\"")

# nvcc's default: the runtime is in the program, and reaches the driver by dlopen and cuGetProcAddress.
program(callers_static ${fuse} cudart_static cublas nccl)
program(callers_runtimes runtimes.c LIBS ranks cudart_static nccl)

# A plug-in: nothing of CUDA is in the program's own scope.
program(callers_module ${fuse} cudart cublas nccl MODULE)
target_compile_definitions(callers_module PRIVATE main=module_main)
target_compile_options(callers_module PRIVATE -Wno-missing-prototypes)
set_target_properties(callers_module PROPERTIES C_VISIBILITY_PRESET default)
program(callers_local callers_local.c)

run(callers_static 60 ${substituted} ${fused} -- $<TARGET_FILE:callers_static> 3 bn)
run(callers_static_at 60 ${substituted} ${fused} -- $<TARGET_FILE:callers_static> 2 at)
run(callers_local 60 ${substituted} ${fused} -- $<TARGET_FILE:callers_local> $<TARGET_FILE:callers_module> 2 bn)
run(callers_runtimes 60 ${substituted} -- $<TARGET_FILE:callers_runtimes> 3)

# Hardware queues: interpose/connections.c. The folder is of a daemon that serves several processes.
program(callers_connections connections.c LIBS cuda)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/daemon/control "")
set(one --set CUDA_DEVICE_MAX_CONNECTIONS=1)
set(daemon --set CUDA_MPS_PIPE_DIRECTORY=${CMAKE_CURRENT_BINARY_DIR}/daemon)
run(callers_connections_usual 60 ${run_sh} -- $<TARGET_FILE:callers_connections> 31 goes)
run(callers_connections_usual_full 60 ${run_sh} -- $<TARGET_FILE:callers_connections> 32 stands)
run(callers_connections_one 60 ${run_sh} ${one} -- $<TARGET_FILE:callers_connections> 31 goes)
run(callers_connections_left 60 ${run_sh} ${one} --set SLIPRING_CONNECTIONS=0 -- $<TARGET_FILE:callers_connections> 1 stands)
run(callers_connections_left_usual 60 ${run_sh} --set SLIPRING_CONNECTIONS=0 -- $<TARGET_FILE:callers_connections> 8 stands)
run(callers_connections_off 60 ${run_sh} ${one} --set SLIPRING_ENABLE=off -- $<TARGET_FILE:callers_connections> 1 stands)
run(callers_connections_fewer 60 ${run_sh} ${one} --set SLIPRING_CONNECTIONS=8 -- $<TARGET_FILE:callers_connections> 8 stands)
run(callers_connections_not_fewer 60 ${run_sh} --set CUDA_DEVICE_MAX_CONNECTIONS=16 --set SLIPRING_CONNECTIONS=4
  -- $<TARGET_FILE:callers_connections> 15 goes)
run(callers_connections_odd 60 ${run_sh} --set CUDA_DEVICE_MAX_CONNECTIONS=many -- $<TARGET_FILE:callers_connections> 8 stands)
run(callers_connections_daemon 60 ${run_sh} ${daemon} -- $<TARGET_FILE:callers_connections> 8 stands)
run(callers_connections_daemon_set 60 ${run_sh} ${daemon} --set SLIPRING_CONNECTIONS=16 -- $<TARGET_FILE:callers_connections> 15 goes)
program(callers_injection injection.c MODULE LIBS cuda)
set_target_properties(callers_injection PROPERTIES C_VISIBILITY_PRESET default)
run(callers_connections_injection 60 ${run_sh} --set CUDA_INJECTION64_PATH=$<TARGET_FILE:callers_injection>
  -- $<TARGET_FILE:callers_connections> 31 goes)
# What other threads do meanwhile is not lost, whether the program has set the number or not.
foreach(what set take change)
  set(meanwhile --set CUDA_INJECTION64_PATH=$<TARGET_FILE:callers_injection> --set MEANWHILE=${what} --set OLD=0)
  run(callers_connections_${what} 60 ${run_sh} ${meanwhile} -- $<TARGET_FILE:callers_connections> 31 goes)
  run(callers_connections_one_${what} 60 ${run_sh} ${meanwhile} ${one} -- $<TARGET_FILE:callers_connections> 31 goes)
endforeach()
run(callers_connections_two_threads 60 ${run_sh} ${one} --set MEANWHILE=init --set OLD=0 --set SOFTGPU_FAIL=cuInit:1+=sleep50
  -- $<TARGET_FILE:callers_connections> 31 goes)
run(callers_connections_again 60 ${run_sh} --set SOFTGPU_FAIL=cuInit:1=802 -- $<TARGET_FILE:callers_connections> 31 goes)
run(callers_connections_none_said 60 ${run_sh} --set CUDA_DEVICE_MAX_CONNECTIONS= -- $<TARGET_FILE:callers_connections> 31 goes)
run(callers_connections_told 60 ${substituted} ${one} --has "\"event\":\"connections\",\"from\":1,\"to\":32" -- $<TARGET_FILE:callers_runtimes> 2)

if(NOT SLIPRING_SANITIZE)
  include(past.cmake)
endif()

# Not under sanitizers, whose runtimes are not made for a Python that was built without them.
if(NOT SLIPRING_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  run(callers_ctypes 60 ${substituted} ${fused} -- ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/callers_gather.py 2)
  add_test(NAME callers_tools COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/callers_tools.sh $<TARGET_FILE:slipring>)
  set_tests_properties(callers_tools PROPERTIES TIMEOUT 60 LABELS callers)
endif()
