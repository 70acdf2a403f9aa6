/* SPDX-License-Identifier: Apache-2.0 */
/* The device code of kernels/reduce.cu itself, run on the host: which elements its threads take, in vectors or alone,
 * and its arithmetic. Compiled with checks of alignment, so that a vector that is not aligned ends the test. */
#include <criterion/criterion.h>
#include <sys/mman.h>
#include "tests/unit/reduce_cases.h"
#include "tests/unit/reduce_source.h"
#ifndef REDUCE_CU
#define REDUCE_CU "kernels/reduce.cu"
#endif
#include REDUCE_CU

TestSuite(reduce_source, .timeout = 100);

typedef void kernel(const struct slr_reduce_args a);
static kernel *const kernels[] = {slr_reduce_bf16, slr_reduce_f16, slr_reduce_f32, slr_copy};

static void run_block(int type, const struct slr_reduce_args *a, unsigned block, unsigned blocks)
{
    gridDim.x = blocks;
    blockDim.x = SLR_REDUCE_THREADS;
    blockIdx.x = block;
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
        kernels[type](*a);
}

static void run_all(const struct reduce_case *c, unsigned char *arena, size_t bytes)
{
    unsigned char *device = aligned_alloc(64, bytes);
    struct slr_reduce_args a = {.out = device + case_at(c, c->n),
                                .also = c->also ? device + case_at(c, c->n + 1) : NULL,
                                .count = c->count,
                                .factor = 1.0 / (double)c->divisor,
                                .n = c->n};
    for (int r = 0; r < c->n; r++)
        a.in[r] = device + case_at(c, r);
    memcpy(device, arena, bytes);
    unsigned blocks = c->blocks ? c->blocks : 1;
    for (unsigned b = 0; b < blocks; b++)
        run_block(c->type, &a, b, blocks);
    memcpy(arena, device, bytes);
    free(device);
}

#define ALL_CASES(type)                                                                                                \
    const char *wrong = case_try_all(type, run_all);                                                                   \
    cr_assert(!wrong, "%s", wrong)

Test(reduce_source, bf16)
{
    ALL_CASES(CASE_BF16);
}

Test(reduce_source, f16)
{
    ALL_CASES(CASE_F16);
}

Test(reduce_source, f32)
{
    ALL_CASES(CASE_F32);
}

Test(reduce_source, copy)
{
    ALL_CASES(CASE_BYTE);
}

/* Memory of which only the pages that are used exist. */
static void *sparse(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert_neq(p, MAP_FAILED);
    return p;
}

/* The first and last blocks of a grid with a tile for each, of a sum with more than 2^32 elements. */
Test(reduce_source, more_than_four_gib)
{
    const size_t tile = SLR_REDUCE_THREADS * 32, tiles = ((size_t)1 << 32) / tile + 3, count = tiles * tile + 9;
    const size_t at[] = {0, tile - 1, (size_t)1 << 32, tiles * tile - 1, count - 9, count - 1};
    const size_t bytes = count * 2;
    uint16_t *in[2] = {sparse(bytes), sparse(bytes)}, *out = sparse(bytes);
    struct slr_reduce_args a = {.out = out, .in = {in[0], in[1]}, .count = count, .factor = 1, .n = 2};

    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        for (int r = 0; r < 2; r++)
            in[r][at[i]] = f32_to_bf16((float)(i + 1) * 4 + (float)r);
    for (unsigned b = 0; b < 16; b++) {
        run_block(CASE_BF16, &a, b, (unsigned)tiles);
        run_block(CASE_BF16, &a, (unsigned)tiles - 1 - b, (unsigned)tiles);
    }
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        cr_assert_eq(bf16_to_f32(out[at[i]]), (float)(i + 1) * 8 + 1, "element %zu is %#x", at[i], out[at[i]]);
    munmap(in[0], bytes);
    munmap(in[1], bytes);
    munmap(out, bytes);
}
