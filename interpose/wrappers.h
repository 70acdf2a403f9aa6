/* SPDX-License-Identifier: Apache-2.0 */
/* Which of our functions stands for which real one. */
#ifndef SLR_INTERPOSE_WRAPPERS_H
#define SLR_INTERPOSE_WRAPPERS_H

/* Marks a function that is exported (it must also be in hooks.def). */
#define SLR_API __attribute__((visibility("default")))

/* A second, hidden name for an exported function of the same file. The exported name may be bound
 * to somebody else's definition. */
#define SLR_HOOK_NAME(fn) extern __typeof__(fn) slr_hook_##fn __attribute__((alias(#fn), visibility("hidden")))

/* The wrapper of the hooked function `name` if its real function is at `real`, else NULL. Finds the
 * library when necessary. */
void *slr_wrapper_by_name(const char *name, void *real);

#endif
