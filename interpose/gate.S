/* SPDX-License-Identifier: Apache-2.0 */
/* The stubs of gate.def. See gate.h. */
#include "interpose/gate.h"

#define SLOT 8

/* ---- x86-64 ---- */
#if defined(__x86_64__)

    .text
    .hidden slr_gate_word
    .hidden slr_gate_real
    .hidden slr_gate_slow

/* The slow path of all stubs. On the stack: the index (pushed by the stub), the return address, the
 * stack arguments. Saved: everything that can carry an argument, the count of vector registers (al)
 * and the static chain (r10). The upper halves of vector registers carry none of a driver
 * function's arguments. */
#define FRAME_STACK   0
#define FRAME_REG     8
#define FRAME_RAX     56
#define FRAME_R10     64
#define FRAME_XMM     80
#define FRAME_SIZE    208

    .p2align 4
    .type slr_gate_enter, @function
slr_gate_enter:
    .cfi_startproc
    .cfi_def_cfa_offset 16
    pushq   %rbp
    .cfi_def_cfa_offset 24
    .cfi_offset %rbp, -24
    movq    %rsp, %rbp
    .cfi_def_cfa_register %rbp
    subq    $(FRAME_SIZE + 8), %rsp /* 8: the stack is aligned to 16 at the call */
    movq    %rdi, FRAME_REG + 0(%rsp)
    movq    %rsi, FRAME_REG + 8(%rsp)
    movq    %rdx, FRAME_REG + 16(%rsp)
    movq    %rcx, FRAME_REG + 24(%rsp)
    movq    %r8, FRAME_REG + 32(%rsp)
    movq    %r9, FRAME_REG + 40(%rsp)
    movq    %rax, FRAME_RAX(%rsp)
    movq    %r10, FRAME_R10(%rsp)
    movaps  %xmm0, FRAME_XMM + 0(%rsp)
    movaps  %xmm1, FRAME_XMM + 16(%rsp)
    movaps  %xmm2, FRAME_XMM + 32(%rsp)
    movaps  %xmm3, FRAME_XMM + 48(%rsp)
    movaps  %xmm4, FRAME_XMM + 64(%rsp)
    movaps  %xmm5, FRAME_XMM + 80(%rsp)
    movaps  %xmm6, FRAME_XMM + 96(%rsp)
    movaps  %xmm7, FRAME_XMM + 112(%rsp)
    leaq    24(%rbp), %rax
    movq    %rax, FRAME_STACK(%rsp)
    movl    8(%rbp), %edi
    movq    %rsp, %rsi
    call    slr_gate_slow
    movq    %rax, %r11
    movq    FRAME_REG + 0(%rsp), %rdi
    movq    FRAME_REG + 8(%rsp), %rsi
    movq    FRAME_REG + 16(%rsp), %rdx
    movq    FRAME_REG + 24(%rsp), %rcx
    movq    FRAME_REG + 32(%rsp), %r8
    movq    FRAME_REG + 40(%rsp), %r9
    movq    FRAME_RAX(%rsp), %rax
    movq    FRAME_R10(%rsp), %r10
    movaps  FRAME_XMM + 0(%rsp), %xmm0
    movaps  FRAME_XMM + 16(%rsp), %xmm1
    movaps  FRAME_XMM + 32(%rsp), %xmm2
    movaps  FRAME_XMM + 48(%rsp), %xmm3
    movaps  FRAME_XMM + 64(%rsp), %xmm4
    movaps  FRAME_XMM + 80(%rsp), %xmm5
    movaps  FRAME_XMM + 96(%rsp), %xmm6
    movaps  FRAME_XMM + 112(%rsp), %xmm7
    leave
    .cfi_def_cfa %rsp, 16
    .cfi_restore %rbp
    addq    $8, %rsp
    .cfi_def_cfa_offset 8
    jmp     *%r11
    .cfi_endproc
    .size slr_gate_enter, . - slr_gate_enter

.macro STUB index
    .cfi_startproc
    endbr64
    cmpl    $0, slr_gate_word(%rip)
    jne     1f
    jmp     *(slr_gate_real + SLOT * \index)(%rip)
1:  pushq   $\index
    .cfi_adjust_cfa_offset 8
    jmp     slr_gate_enter
    .cfi_endproc
.endm

/* ---- aarch64 ---- */
#elif defined(__aarch64__)

    .text
    .hidden slr_gate_word
    .hidden slr_gate_real
    .hidden slr_gate_slow

/* As above; the index is in w16. x8 can carry the address of a returned structure. */
#define FRAME_STACK   0
#define FRAME_REG     8
#define FRAME_X8      72
#define FRAME_Q       80
#define FRAME_SIZE    208

    .p2align 4
    .type slr_gate_enter, %function
slr_gate_enter:
    .cfi_startproc
    hint    #34 /* bti c */
    stp     x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov     x29, sp
    .cfi_def_cfa_register x29
    sub     sp, sp, #FRAME_SIZE
    add     x17, x29, #16
    stp     x17, x0, [sp, #FRAME_STACK]
    stp     x1, x2, [sp, #FRAME_REG + 8]
    stp     x3, x4, [sp, #FRAME_REG + 24]
    stp     x5, x6, [sp, #FRAME_REG + 40]
    stp     x7, x8, [sp, #FRAME_REG + 56]
    stp     q0, q1, [sp, #FRAME_Q]
    stp     q2, q3, [sp, #FRAME_Q + 32]
    stp     q4, q5, [sp, #FRAME_Q + 64]
    stp     q6, q7, [sp, #FRAME_Q + 96]
    mov     w0, w16
    mov     x1, sp
    bl      slr_gate_slow
    mov     x16, x0
    ldr     x0, [sp, #FRAME_REG]
    ldp     x1, x2, [sp, #FRAME_REG + 8]
    ldp     x3, x4, [sp, #FRAME_REG + 24]
    ldp     x5, x6, [sp, #FRAME_REG + 40]
    ldp     x7, x8, [sp, #FRAME_REG + 56]
    ldp     q0, q1, [sp, #FRAME_Q]
    ldp     q2, q3, [sp, #FRAME_Q + 32]
    ldp     q4, q5, [sp, #FRAME_Q + 64]
    ldp     q6, q7, [sp, #FRAME_Q + 96]
    mov     sp, x29
    .cfi_def_cfa_register sp
    ldp     x29, x30, [sp], #16
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    br      x16
    .cfi_endproc
    .size slr_gate_enter, . - slr_gate_enter

/* The word is loaded with acquire: the table is read after it. */
.macro STUB index
    .cfi_startproc
    hint    #34 /* bti c */
    adrp    x16, slr_gate_word
    add     x16, x16, #:lo12:slr_gate_word
    ldar    w17, [x16]
    cbnz    w17, 1f
    adrp    x16, slr_gate_real + SLOT * \index
    ldr     x16, [x16, #:lo12:(slr_gate_real + SLOT * \index)]
    br      x16
1:  mov     w16, #\index
    b       slr_gate_enter
    .cfi_endproc
.endm

#else
#error "the gate is written for x86-64 and aarch64"
#endif

.macro GATE sym, stub, index
    .globl \sym
    .hidden \stub
    .globl \stub
    .type \sym, %function
    .type \stub, %function
    .p2align SLR_GATE_SPARE_SHIFT
\sym:
\stub:
    STUB \index
    .size \sym, . - \sym
    .size \stub, . - \stub
.endm

.macro SPARE index
    .p2align SLR_GATE_SPARE_SHIFT
    STUB \index
.endm

/* __COUNTER__ starts at 0 in this file and grows by one for each row, as the enumeration of
 * gate.h does. */
#define X(sym, cls, arg, why) GATE sym, slr_stub_##sym, __COUNTER__;
#include "interpose/gate.def"

#define S1 SPARE __COUNTER__;
#define S4 S1 S1 S1 S1
#define S16 S4 S4 S4 S4
#define S64 S16 S16 S16 S16
#if SLR_GATE_SPARES != 256
#error "four times 64 are written here"
#endif
    .hidden slr_gate_spares
    .globl slr_gate_spares
    .type slr_gate_spares, %function
    .p2align SLR_GATE_SPARE_SHIFT
slr_gate_spares:
    S64
    S64
    S64
    S64
    .p2align SLR_GATE_SPARE_SHIFT
    .size slr_gate_spares, . - slr_gate_spares

    .section .note.GNU-stack, "", %progbits
#if defined(__x86_64__)
/* IBT and SHSTK: the stubs keep both properties. */
    .section .note.gnu.property, "a", @note
    .p2align 3
    .long   4, 16, 5
    .asciz  "GNU"
    .long   0xc0000002, 4, 3, 0
#elif defined(__aarch64__)
    .section .note.gnu.property, "a", %note
    .p2align 3
    .long   4, 16, 5
    .asciz  "GNU"
    .long   0xc0000000, 4, 1, 0
#endif
