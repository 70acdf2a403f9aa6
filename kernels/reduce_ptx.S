/* SPDX-License-Identifier: Apache-2.0 */
/* The device code of reduce.cu, as text for the driver. SLR_REDUCE_PTX: path of reduce.ptx. */
    .section .rodata
    .p2align 3
    .globl slr_reduce_ptx
    .hidden slr_reduce_ptx
    .type slr_reduce_ptx, %object
slr_reduce_ptx:
    .incbin SLR_REDUCE_PTX
    .byte 0
    .size slr_reduce_ptx, . - slr_reduce_ptx

    .section .note.GNU-stack, "", %progbits
