/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the contributions of n ranks:
 *
 *   out[i] = round((in[0][i] + in[1][i] + ... + in[n - 1][i]) / divisor)
 *
 * Each sum is taken in fp32, from the left, and rounded once, to nearest even. No element depends
 * on the grid, so the bits are the same for any number of blocks and in every run.
 *
 * Pointers are aligned to their elements. Where they are all at the same distance from a multiple
 * of 16, what lies between such multiples is moved by 16 bytes; the rest, and everything where they
 * are not, by elements. `out` may be one of the inputs: who reads an element of any of them is who
 * writes it, afterwards. `also`, if there is one, gets what `out` gets.
 *
 * slr_copy moves bytes, of one contribution, as they are: a sum would make another NaN of a NaN.
 *
 * A block has to reach a good part of what one multiprocessor can read, as few run at a time: each
 * thread loads several vectors of one contribution, and those of the next one while it adds them.
 *
 * This is C as well as CUDA C++: tests/unit/reduce_source.h says what it needs of the device, and a
 * test runs it block by block on the host. reduce.ptx is made of it by scripts/ptx.sh. */
#include "kernels/reduce_args.h"

#ifdef __CUDACC__
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(SLR_REDUCE_THREADS) name
#define PARAMETER const __grid_constant__
#define INLINE static __device__ __forceinline__
#define UNROLLED _Pragma("unroll")
#define AS_IT_IS _Pragma("unroll 1") /* else there is more code, which each load compiles */

INLINE float f16_to_f32(unsigned short h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

INLINE unsigned two_f16(float low, float high)
{
    unsigned w;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
}

INLINE unsigned two_bf16(float low, float high)
{
    unsigned w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
}
#endif

enum { BF16, F16, F32, BYTE };
enum {
    WORDS = 4, /* of a vector */
    LANES = 2 * WORDS /* at most */,
    VECTORS_AT_ONCE = 4,
    COPIED_AT_ONCE = 8, /* vectors, as what another device has takes longer to come */
    ELEMENTS_AT_ONCE = 8,
    AT_ONCE = 8
};

/* A vector, or an element alone in the low bits of its first word; and the sum of such. */
struct unit {
    unsigned word[WORDS];
};
struct sum {
    float lane[LANES];
};

INLINE int element_bytes(const int type)
{
    return type == F32 ? 4 : type == BYTE ? 1 : 2;
}

INLINE int words_of(const int wide)
{
    return wide ? WORDS : 1;
}

INLINE struct unit load(const int type, const int wide, const void *base, size_t i)
{
    struct unit u;
    if (wide) {
        const uint4 v = __ldcs((const uint4 *)base + i);
        u.word[0] = v.x;
        u.word[1] = v.y;
        u.word[2] = v.z;
        u.word[3] = v.w;
    } else {
        u.word[0] = type == F32    ? __ldcs((const unsigned *)base + i)
                    : type == BYTE ? __ldcs((const unsigned char *)base + i)
                                   : __ldcs((const unsigned short *)base + i);
    }
    return u;
}

INLINE void store(const int type, const int wide, void *base, size_t i, struct unit u)
{
    if (wide)
        ((uint4 *)base)[i] = make_uint4(u.word[0], u.word[1], u.word[2], u.word[3]);
    else if (type == F32)
        ((unsigned *)base)[i] = u.word[0];
    else if (type == BYTE)
        ((unsigned char *)base)[i] = (unsigned char)u.word[0];
    else
        ((unsigned short *)base)[i] = (unsigned short)u.word[0];
}

INLINE float low_of(const int type, unsigned word)
{
    return type == F32    ? __uint_as_float(word)
           : type == BF16 ? __uint_as_float(word << 16)
                          : f16_to_f32((unsigned short)(word & 0xffffu));
}

INLINE float high_of(const int type, unsigned word)
{
    return type == BF16 ? __uint_as_float(word & 0xffff0000u) : f16_to_f32((unsigned short)(word >> 16));
}

INLINE void clear(struct sum *s)
{
    UNROLLED
    for (int i = 0; i < LANES; i++)
        s->lane[i] = -0.0f; /* x + -0 is x for every x; 0 would make 0 of -0 */
}

INLINE void add(const int type, const int wide, struct sum *s, struct unit u)
{
    UNROLLED
    for (int w = 0; w < words_of(wide); w++) {
        s->lane[2 * w] = __fadd_rn(s->lane[2 * w], low_of(type, u.word[w]));
        if (wide && type != F32)
            s->lane[2 * w + 1] = __fadd_rn(s->lane[2 * w + 1], high_of(type, u.word[w]));
    }
}

/* Of a sum and the divisor, rounded to fp32 once: a quotient by a number of ranks is far enough from the
 * middle of two floats that the product with the reciprocal, in fp64, is on the same side of it. */
INLINE float quotient(float sum, double factor)
{
    return factor == 1.0 ? sum : __double2float_rn(__dmul_rn((double)sum, factor));
}

INLINE struct unit rounded(const int type, const int wide, const struct sum *s, double factor)
{
    struct unit u;
    UNROLLED
    for (int w = 0; w < words_of(wide); w++) {
        float low = quotient(s->lane[2 * w], factor), high = wide ? quotient(s->lane[2 * w + 1], factor) : 0.0f;
        u.word[w] = type == F32 ? __float_as_uint(low) : type == BF16 ? two_bf16(low, high) : two_f16(low, high);
    }
    return u;
}

/* Where the sweep over units that begin with the element `from` finds the unit i: elements from
 * `gap` on are `skip` further. */
struct place {
    size_t from, gap, skip;
};

INLINE size_t place_of(const struct place *p, size_t i)
{
    return i < p->gap ? i : i + p->skip;
}

/* The units first, first + apart, ..., at_once of them. */
INLINE void reduce(const int type, const int wide, const int at_once, const struct slr_reduce_args *a,
                   const struct place *p, size_t first, size_t apart)
{
    const size_t from = p->from * (size_t)element_bytes(type);
    const int n = a->n;
    struct unit now[AT_ONCE], next[AT_ONCE];
    struct sum sum[AT_ONCE];

    UNROLLED
    for (int u = 0; u < at_once; u++) {
        clear(&sum[u]);
        now[u] = load(type, wide, (const char *)a->in[0] + from, place_of(p, first + (size_t)u * apart));
    }
    AS_IT_IS
    for (int r = 1; r < n; r++) {
        const char *in = (const char *)a->in[r] + from;
        UNROLLED
        for (int u = 0; u < at_once; u++)
            next[u] = load(type, wide, in, place_of(p, first + (size_t)u * apart));
        UNROLLED
        for (int u = 0; u < at_once; u++) {
            add(type, wide, &sum[u], now[u]);
            now[u] = next[u];
        }
    }
    UNROLLED
    for (int u = 0; u < at_once; u++) {
        const size_t at = place_of(p, first + (size_t)u * apart);
        add(type, wide, &sum[u], now[u]);
        now[u] = rounded(type, wide, &sum[u], a->factor);
        store(type, wide, (char *)a->out + from, at, now[u]);
        if (a->also)
            store(type, wide, (char *)a->also + from, at, now[u]);
    }
}

/* Likewise, of one contribution, as it is. */
INLINE void copy(const int wide, const int at_once, const struct slr_reduce_args *a, const struct place *p,
                 size_t first, size_t apart)
{
    struct unit now[AT_ONCE];

    UNROLLED
    for (int u = 0; u < at_once; u++)
        now[u] = load(BYTE, wide, (const char *)a->in[0] + p->from, place_of(p, first + (size_t)u * apart));
    UNROLLED
    for (int u = 0; u < at_once; u++)
        store(BYTE, wide, (char *)a->out + p->from, place_of(p, first + (size_t)u * apart), now[u]);
}

INLINE void move(const int type, const int wide, const int at_once, const struct slr_reduce_args *a,
                 const struct place *p, size_t first, size_t apart)
{
    if (type == BYTE)
        copy(wide, at_once, a, p, first, apart);
    else
        reduce(type, wide, at_once, a, p, first, apart);
}

/* All blocks go over the units together, each by tiles of its threads times at_once. */
INLINE void sweep(const int type, const int wide, const int at_once, const struct slr_reduce_args *a,
                  const struct place *p, size_t units)
{
    const size_t threads = blockDim.x, tile = threads * (size_t)at_once, full = units / tile * tile;

    AS_IT_IS
    for (size_t at = blockIdx.x * tile; at < full; at += gridDim.x * tile)
        move(type, wide, at_once, a, p, at + threadIdx.x, threads);
    AS_IT_IS
    for (size_t i = full + blockIdx.x * threads + threadIdx.x; i < units; i += gridDim.x * threads)
        move(type, wide, 1, a, p, i, 0);
}

INLINE int aligned_alike(const struct slr_reduce_args *a)
{
    size_t differ = a->also ? (size_t)a->also ^ (size_t)a->out : 0;
    AS_IT_IS
    for (int r = 0; r < a->n; r++)
        differ |= (size_t)a->in[r] ^ (size_t)a->out;
    return (differ & 15) == 0;
}

INLINE void reduce_all(const int type, const struct slr_reduce_args *a)
{
    const size_t count = a->count, per_vector = 16 / (size_t)element_bytes(type);
    size_t head = aligned_alike(a) ? (16 - ((size_t)a->out & 15)) % 16 / (size_t)element_bytes(type) : count;

    if (head > count)
        head = count;
    const size_t vectors = (count - head) / per_vector;
    const struct place middle = {head, vectors, 0}, rest = {0, head, vectors * per_vector};
    sweep(type, 1, type == BYTE ? COPIED_AT_ONCE : VECTORS_AT_ONCE, a, &middle, vectors);
    sweep(type, 0, ELEMENTS_AT_ONCE, a, &rest, count - vectors * per_vector);
}

KERNEL(slr_reduce_bf16)(PARAMETER struct slr_reduce_args a)
{
    reduce_all(BF16, &a);
}

KERNEL(slr_reduce_f16)(PARAMETER struct slr_reduce_args a)
{
    reduce_all(F16, &a);
}

KERNEL(slr_reduce_f32)(PARAMETER struct slr_reduce_args a)
{
    reduce_all(F32, &a);
}

KERNEL(slr_copy)(PARAMETER struct slr_reduce_args a)
{
    reduce_all(BYTE, &a);
}
