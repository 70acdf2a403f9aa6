# SPDX-License-Identifier: Apache-2.0
# SLIPRING_PRELOAD_FIRST: the sanitizer's shared runtime, which must come before any other preloaded library; empty when there is no
# sanitizer or the compiler links its runtime into the programs (clang).
set(SLIPRING_PRELOAD_FIRST "")
if(SLIPRING_SANITIZE AND CMAKE_C_COMPILER_ID STREQUAL GNU)
  if(SLIPRING_SANITIZE MATCHES address)
    set(runtime libasan.so)
  elseif(SLIPRING_SANITIZE MATCHES thread)
    set(runtime libtsan.so)
  else()
    set(runtime libubsan.so)
  endif()
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=${runtime} OUTPUT_VARIABLE SLIPRING_PRELOAD_FIRST
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  get_filename_component(SLIPRING_PRELOAD_FIRST ${SLIPRING_PRELOAD_FIRST} REALPATH)
endif()
