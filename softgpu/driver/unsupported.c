/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points that exist in the real driver, answer CUDA_ERROR_NOT_SUPPORTED here, and are listed in unsupported.def:
 * aliases of one function, since their arguments do not matter. */
#include "sg.h"

#define ALIAS(symbol) __asm__(".globl " #symbol "\n.type " #symbol ", %function\n.set " #symbol ", sg_unsupported");

CUresult sg_unsupported(void);
__attribute__((used)) CUresult sg_unsupported(void)
{
    CUresult rc = sg_enter(SG_ENTRY_COUNT);
    return rc ? rc : CUDA_ERROR_NOT_SUPPORTED;
}

#define SG_ENTRY(symbol, base, version, mode) ALIAS(symbol)
#include "unsupported.def"
#undef SG_ENTRY
