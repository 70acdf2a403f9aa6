/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder callers/ alone: where names come from. */
#ifndef SLR_PLUGIN_CALLERS_CALLERS_IMPL_H
#define SLR_PLUGIN_CALLERS_CALLERS_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "plugin/abi/nvtx.h"

/* ---- injection.c ---- */

enum { SLR_RANGES = 64, SLR_RANGE_NAME = 128, SLR_RANGE_DOMAINS = 64 };

/* They return the range's level in its domain, from 0. -1: none is open; no memory. */
int slr_ranges_push(unsigned domain, const char *name);
int slr_ranges_pop(unsigned domain);

/* "outermost > ... > innermost", with "DOMAIN:" before names of other domains than the default one. What does not fit
 * is left out on the outer side. False: none is open, and the text is empty. */
bool slr_ranges_text(char *buf, size_t size);

/* Exported; NVTX calls it. 1: this tool is there; 0: it is not. */
int InitializeInjectionNvtx2(slr_nvtx_get_table get);

/* Whether the tool that NVTX_INJECTION64_PATH names is this library, by the file. */
int slr_injection_named(const char *path);

#endif
