/* SPDX-License-Identifier: Apache-2.0 */
/* Code that may run before anything in the process has been initialised: the dynamic linker's
 * look-ups are called by sanitizers' runtimes and by allocators while they start. Such functions
 * are not instrumented, call nothing and take no lock. */
#ifndef SLR_INTERPOSE_EARLY_H
#define SLR_INTERPOSE_EARLY_H

#ifdef __has_attribute
#if __has_attribute(disable_sanitizer_instrumentation)
#define SLR_NO_INSTRUMENTATION __attribute__((disable_sanitizer_instrumentation))
#endif
#endif
#ifndef SLR_NO_INSTRUMENTATION
#define SLR_NO_INSTRUMENTATION
#endif
#define SLR_EARLY                                                                                                      \
    SLR_NO_INSTRUMENTATION                                                                                             \
    __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

#endif
