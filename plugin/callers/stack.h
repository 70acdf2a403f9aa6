/* SPDX-License-Identifier: Apache-2.0 */
/* The native frames that a call of NCCL comes from.
 *
 * Taken by libc's backtrace(), which loads libgcc_s.so.1 by itself at its first call: the library keeps its only
 * dependency. That call allocates, and may wait for the dynamic linker; so it is made where slipring holds no lock, in the
 * program's own call of NCCL, where the program waits for as much anyway (its first kernel loads more).
 *
 * Frames of this library and of libnccl are left out. A frame is SYMBOL+OFFSET (FILE) where dladdr knows one, else
 * FILE+OFFSET, which addr2line takes; offsets are those of the return address. Four frames, innermost first.
 *
 * Of an interpreter these are the interpreter's frames, not the program's lines. To ask Python for those takes its lock
 * (the GIL), which another thread may hold that waits for this call. To read the thread's own frames without it would be
 * safe, as they can not change meanwhile, but their layout differs from version to version, and CPython's function that
 * does so (for faulthandler) is for others up to 3.12 and from 3.15 on only. So slipring does not.
 */
#ifndef SLR_PLUGIN_CALLERS_STACK_H
#define SLR_PLUGIN_CALLERS_STACK_H

#include <stddef.h>
#include <stdint.h>

enum { SLR_STACK_FRAMES = 8, SLR_STACK_SHOWN = 4 };

struct slr_stack {
    void *frame[SLR_STACK_FRAMES]; /* outside of this library */
    int count;
};

void slr_stack_take(struct slr_stack *s);

/* Equal stacks have equal keys. */
uint64_t slr_stack_key(const struct slr_stack *s);

void slr_stack_text(const struct slr_stack *s, char *buf, size_t size);

#endif
