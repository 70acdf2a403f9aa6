/* SPDX-License-Identifier: Apache-2.0 */
/* What floor multiplies. For the check a gathered row has a few small integers in places of its own,
 * and zeros elsewhere, and the weights are small integers, so that the products are exact and each
 * can be told from its row and column. GPUs take less power for zeros, and so may run faster: what
 * is timed has random bits. */
#include <string.h>

#include "floor.h"

enum { PLACES = 4, MOST_ROWS = 256 };

static uint32_t mixed(uint32_t x)
{
    x = (x + 1) * 2654435761u; /* 2^32 over the golden ratio */
    x = (x ^ x >> 15) * 2654435761u;
    return x ^ x >> 13;
}

/* Exact up to 256. */
static bf16 encoded(int value)
{
    const float wide = (float)value;
    uint32_t bits;
    memcpy(&bits, &wide, sizeof bits);
    return (bf16)(bits >> 16);
}

static float decoded(bf16 narrow)
{
    const uint32_t bits = (uint32_t)narrow << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

static int weight_at(int device, size_t index)
{
    return (int)(mixed((uint32_t)(2 * index) + (uint32_t)device) % 7) - 3;
}

/* What a gathered row has there; two may be the same place, and add up. */
static size_t place_of(const struct shape *s, size_t row, int i)
{
    return mixed((uint32_t)(row * PLACES) + (uint32_t)i) % s->k;
}

static int value_of(size_t row, int i)
{
    return 1 + (int)((row + (size_t)i) % 3);
}

static void gathered_row(const struct shape *s, size_t row, bf16 *out)
{
    memset(out, 0, s->k * sizeof *out);
    for (int i = 0; i < PLACES; i++)
        out[place_of(s, row, i)] = encoded((int)decoded(out[place_of(s, row, i)]) + value_of(row, i));
}

static int product_at(const struct shape *s, int device, size_t row, size_t column)
{
    int sum = 0;
    for (int i = 0; i < PLACES; i++)
        sum += value_of(row, i) * weight_at(device, column * s->k + place_of(s, row, i));
    return sum;
}

static bf16 *host_memory(size_t elements)
{
    bf16 *memory = malloc(elements * sizeof *memory);
    if (!memory)
        DIE(FAILED, "no memory on the host");
    return memory;
}

static void synchronize(void)
{
    for (int d = 0; d < GPUS; d++) {
        on(d);
        OK(cudaDeviceSynchronize()); /* our streams do not wait for the default one */
    }
}

static void small_shard(const struct shape *s, int device, bf16 *out)
{
    const size_t half = s->m / 2;
    for (size_t row = 0; row < half; row++)
        gathered_row(s, (size_t)device * half + row, out + row * s->k);
}

static void small_weight(const struct shape *s, int device, bf16 *out)
{
    for (size_t i = 0; i < s->n * s->k; i++)
        out[i] = encoded(weight_at(device, i));
}

/* Of either sign, between 1/2 and 2. */
static void random_values(uint32_t seed, size_t count, bf16 *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (bf16)((mixed((uint32_t)i + seed) & 0x80ff) | 0x3f00);
}

static void random_shard(const struct shape *s, int device, bf16 *out)
{
    random_values(0x10000000u * (uint32_t)(1 + device), s->m / 2 * s->k, out);
}

static void random_weight(const struct shape *s, int device, bf16 *out)
{
    random_values(0x10000000u * (uint32_t)(8 + device), s->n * s->k, out);
}

typedef void make_matrix(const struct shape *s, int device, bf16 *out);

static void fill(const struct shape *s, make_matrix *make_shard, make_matrix *make_weight)
{
    const size_t shard = s->m / 2 * s->k, weight = s->n * s->k;
    bf16 *host = host_memory(shard > weight ? shard : weight);
    for (int d = 0; d < GPUS; d++) {
        on(d);
        for (int owner = 0; owner < GPUS; owner++) {
            make_shard(s, owner, host);
            OK(cudaMemcpy(gpu[d].recv + (size_t)owner * shard, host, shard * sizeof *host, cudaMemcpyHostToDevice));
            if (owner == d)
                OK(cudaMemcpy(gpu[d].send, host, shard * sizeof *host, cudaMemcpyHostToDevice));
        }
        make_weight(s, d, host);
        OK(cudaMemcpy(gpu[d].weight, host, weight * sizeof *host, cudaMemcpyHostToDevice));
    }
    free(host);
    synchronize();
}

void data_small_integers(const struct shape *s)
{
    fill(s, small_shard, small_weight);
}

void data_random(const struct shape *s)
{
    fill(s, random_shard, random_weight);
}

/* Bytes of NaNs, so that what is not written can not be right. The GEMM alone is the first way: it
 * reads what fill has left in recv. */
static void spoil(const struct way *way, const struct shape *s)
{
    for (int d = 0; d < GPUS; d++) {
        on(d);
        if (way->kind != GEMM_ALONE)
            OK(cudaMemset(gpu[d].recv, 0xff, s->m * s->k * sizeof(bf16)));
        OK(cudaMemset(gpu[d].out, 0xff, s->m * s->n * sizeof(bf16)));
    }
    synchronize();
}

static void complain(const struct way *way, int device, const char *what, size_t row, size_t column)
{
    char name[64];
    DIE(WRONG, "wrong result: GPU %d, %s, own shard %s: %s: row %zu, column %zu", device,
        way_name(way, name, sizeof name), own_name[way->own], what, row, column);
}

static size_t check_gathered(const struct way *way, const struct shape *s, int d, size_t row, bf16 *got, bf16 *wanted)
{
    const int owner = row >= s->m / 2;
    if (way->kind == GEMM_ALONE || (owner == d && way->own == OWN_NONE))
        return 0;
    OK(cudaMemcpy(got, gpu[d].recv + row * s->k, s->k * sizeof *got, cudaMemcpyDeviceToHost));
    gathered_row(s, row, wanted);
    for (size_t i = 0; i < s->k; i++)
        if (got[i] != wanted[i])
            complain(way, d, "gathered", row, i);
    return s->k;
}

static size_t check_product(const struct way *way, const struct shape *s, int d, size_t row, bf16 *got)
{
    if (way->kind == COPY_ALONE)
        return 0;
    OK(cudaMemcpy(got, gpu[d].out + row * s->n, s->n * sizeof *got, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < s->n; i++)
        if (decoded(got[i]) != (float)product_at(s, d, row, i))
            complain(way, d, "product", row, i);
    return s->n;
}

static size_t check_gpu(const struct way *way, const struct shape *s, int d)
{
    const size_t rows = s->m < MOST_ROWS ? s->m : MOST_ROWS;
    bf16 *got = host_memory(s->k + s->n), *wanted = host_memory(s->k);
    size_t compared = 0;
    on(d);
    for (size_t i = 0; i < rows; i++) {
        const size_t row = i * (s->m - 1) / (rows - 1);
        compared += check_gathered(way, s, d, row, got, wanted);
        compared += check_product(way, s, d, row, got);
    }
    free(got);
    free(wanted);
    return compared;
}

size_t data_check(const struct way *ways, int count, const struct shape *s)
{
    size_t compared = 0;
    data_small_integers(s);
    for (const struct way *way = ways; way < ways + count; way++) {
        spoil(way, s);
        way_run(way, s);
        for (int d = 0; d < GPUS; d++)
            compared += check_gpu(way, s, d);
    }
    return compared;
}
