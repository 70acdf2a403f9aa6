# SPDX-License-Identifier: Apache-2.0
# SLIPRING_GLIBC_2_28: what is shipped runs with glibc 2.28 and later, also when it is built with a later one
# (packaging/old_glibc.h says how). The folder's targets from here on are concerned.
option(SLIPRING_GLIBC_2_28 "Build for glibc 2.28 and later" OFF)
if(NOT SLIPRING_GLIBC_2_28)
  return()
endif()
if(SLIPRING_TESTS OR SLIPRING_SANITIZE)
  message(FATAL_ERROR "SLIPRING_GLIBC_2_28 is for what is shipped: with SLIPRING_TESTS=OFF and without sanitizers")
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:C>:SHELL:-include ${PROJECT_SOURCE_DIR}/packaging/old_glibc.h>")
# Where the functions were before 2.34. Later these libraries are empty, and there for such as us.
add_link_options(-Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--pop-state)
