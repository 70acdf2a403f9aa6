/* SPDX-License-Identifier: Apache-2.0 */
/* dlsym, dlvsym, dlopen and dlmopen as this library exports them.
 *
 * The real functions find RTLD_NEXT and RTLD_DEFAULT, the caller's RUNPATH, $ORIGIN and namespace from
 * the address that they return to, so they are jumped to, never called, with the caller's return address on top of the stack (in the link
 * register). Before that slr_dlsym_find and its like may name a replacement. */
#if defined(__x86_64__)

.macro LOOKUP name, find, real
    .globl \name
    .hidden \find
    .hidden \real
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    pushq   %rdx
    .cfi_adjust_cfa_offset 8
    call    \find
    popq    %rdx
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    testq   %rax, %rax
    je      1f
    ret
1:  jmp     *\real(%rip)
    .cfi_endproc
    .size \name, . - \name
.endm

#elif defined(__aarch64__)

.macro LOOKUP name, find, real
    .globl \name
    .hidden \find
    .hidden \real
    .type \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint    #34 /* bti c */
    stp     x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset x29, -48
    .cfi_offset x30, -40
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    str     x2, [sp, #32]
    bl      \find
    mov     x16, x0
    ldp     x0, x1, [sp, #16]
    ldr     x2, [sp, #32]
    ldp     x29, x30, [sp], #48
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    cbz     x16, 1f
    mov     x0, x16
    ret
1:  adrp    x16, \real
    ldr     x16, [x16, #:lo12:\real]
    br      x16
    .cfi_endproc
    .size \name, . - \name
.endm

#else
#error "written for x86-64 and aarch64"
#endif

    .text
    LOOKUP dlsym, slr_dlsym_find, slr_real_dlsym
    LOOKUP dlvsym, slr_dlvsym_find, slr_real_dlvsym
    LOOKUP dlopen, slr_dlopen_find, slr_real_dlopen
    LOOKUP dlmopen, slr_dlmopen_find, slr_real_dlmopen

    .section .note.GNU-stack, "", %progbits
#if defined(__x86_64__)
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
