/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reach.h"

#include <stddef.h>

_Atomic unsigned slr_reach_word;
void (*_Atomic slr_reach_looks)(void);
