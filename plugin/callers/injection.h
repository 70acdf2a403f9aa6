/* SPDX-License-Identifier: Apache-2.0 */
/* The library as a tool of NVTX (abi/nvtx.h): the program's pushes and pops of ranges go to ranges.h, all else of NVTX
 * to nobody. It is asked once by each library of the program that has NVTX, at that library's first call, and says no
 * unless SLIPRING_CALLERS is nvtx: then these calls do nothing, as without a tool.
 *
 * It calls nothing of NVTX, whose instance waits for it. Of slipring it only reads the settings, so it may be asked at any
 * time, on any thread, in a process that has no communicator, and in one where the library is not preloaded (there
 * nobody ever asks for the ranges).
 *
 * Registered strings are copied, 127 bytes of each, 4096 of them; a handle is the copy's address. They are never freed:
 * a program may use a handle as long as it lives. Handles of others, as of a library that was told by another tool, are
 * not followed.
 */
#ifndef SLR_PLUGIN_CALLERS_INJECTION_H
#define SLR_PLUGIN_CALLERS_INJECTION_H

#include "plugin/abi/nvtx.h"

/* Exported; NVTX calls it. 1: this tool is there; 0: it is not. */
int InitializeInjectionNvtx2(slr_nvtx_get_table get);

/* Whether the tool that NVTX_INJECTION64_PATH names is this library, by the file. */
int slr_injection_named(const char *path);

#endif
