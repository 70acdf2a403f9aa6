/* SPDX-License-Identifier: Apache-2.0 */
#include "ag_data.h"

#include <math.h>
#include <string.h>

enum stream { SHARD, WEIGHT, OUTPUT, BIAS };

/* The finaliser of splitmix64: a bijection of 64-bit words that mixes well. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t key(uint64_t seed, enum stream stream, uint64_t step, int rank)
{
    return mix(mix(mix(seed + 1) + (uint64_t)stream + 1) + step + 1) + (uint64_t)rank * 0x9e3779b97f4a7c15u;
}

static uint64_t draw(uint64_t stream_key, uint64_t index)
{
    return mix(mix(stream_key) + index);
}

/* -4..4 */
static int small_integer(uint64_t bits)
{
    return (int)((bits >> 32) * 9 >> 32) - 4;
}

/* -1, 0 or 1; about 256 of k elements are not 0, which keeps sums of products below 256 with room
 * to spare. */
static int weight_value(uint64_t bits, long k)
{
    const uint64_t threshold = k <= 512 ? UINT64_C(1) << 31 : (UINT64_C(256) << 32) / (uint64_t)k;
    if ((bits & 0xffffffffu) >= threshold)
        return 0;
    return bits >> 63 ? 1 : -1;
}

static uint16_t encode_half(double value)
{
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const double size = fabs(value);
    int exponent;
    if (size == 0 || isnan(size))
        return isnan(size) ? 0x7e00 : sign;
    frexp(size, &exponent);                                  /* size = f * 2^exponent, f in [0.5, 1) */
    const int unit = (exponent < -13 ? -13 : exponent) - 11; /* 11 significant bits; subnormals share one unit */
    const double scaled = nearbyint(ldexp(size, -unit));
    if (ldexp(scaled, unit) >= 65536)
        return sign | 0x7c00;
    /* Adding instead of combining the fields lets a carry out of the mantissa step the exponent. */
    return (uint16_t)(sign + ((unit + 24) << 10) + (int)scaled);
}

static double decode_half(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(mantissa + 1024, exponent - 25) : ldexp(mantissa, -24));
}

static uint16_t encode_bf16(double value)
{
    const float single = (float)value; /* exact for the integers that occur here, so there is no double rounding */
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    if (isnan(single))
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double decode_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float single;
    memcpy(&single, &bits, sizeof(single));
    return single;
}

void ag_encode(int dtype, double value, void *out)
{
    const uint16_t narrow = dtype == AG_BF16 ? encode_bf16(value) : dtype == AG_FP16 ? encode_half(value) : 0;
    const float single = (float)value;
    switch (dtype) {
    case AG_BF16:
    case AG_FP16:
        memcpy(out, &narrow, sizeof(narrow));
        break;
    case AG_FP32:
        memcpy(out, &single, sizeof(single));
        break;
    case AG_FP64:
        memcpy(out, &value, sizeof(value));
        break;
    default:
        *(int8_t *)out = (int8_t)value;
    }
}

double ag_decode(int dtype, const void *in)
{
    uint16_t narrow;
    float single;
    double wide;
    switch (dtype) {
    case AG_BF16:
    case AG_FP16:
        memcpy(&narrow, in, sizeof(narrow));
        return dtype == AG_BF16 ? decode_bf16(narrow) : decode_half(narrow);
    case AG_FP32:
        memcpy(&single, in, sizeof(single));
        return single;
    case AG_FP64:
        memcpy(&wide, in, sizeof(wide));
        return wide;
    default:
        return *(const int8_t *)in;
    }
}

/* Codes of -4..4, so that filling a large matrix does not round each element anew. */
struct codes {
    size_t bytes;
    unsigned char code[9][8];
};

static struct codes codes_in(int dtype, size_t bytes)
{
    struct codes codes = {.bytes = bytes};
    for (int value = -4; value <= 4; value++)
        ag_encode(dtype, value, codes.code[value + 4]);
    return codes;
}

static struct codes codes_of(const struct ag_data *data)
{
    return codes_in(data->dtype, data->shape.element_bytes);
}

static void put(const struct codes *codes, void *out, size_t index, int value)
{
    /* No memcpy: each of these would be a call, in which a sanitizer spends a third of a program's time. */
    for (size_t i = 0; i < codes->bytes; i++)
        ((unsigned char *)out)[index * codes->bytes + i] = codes->code[value + 4][i];
}

/* Byte i of the stream is byte i % 8 of draw(i / 8). */
static void random_bytes(uint64_t stream_key, size_t first, size_t count, unsigned char *out)
{
    for (size_t i = 0; i < count;) {
        const uint64_t word = draw(stream_key, (first + i) / 8);
        for (size_t byte = (first + i) % 8; byte < 8 && i < count; byte++)
            out[i++] = (unsigned char)(word >> 8 * byte);
    }
}

void ag_data_shard(const struct ag_data *data, uint64_t step, int rank, size_t first, size_t count, void *out)
{
    const uint64_t stream_key = key(data->seed, SHARD, step, rank);
    const size_t bytes = data->shape.element_bytes;
    if (!data->shape.gemm) {
        random_bytes(stream_key, first * bytes, count * bytes, out);
        return;
    }
    const struct codes codes = codes_of(data);
    for (size_t i = 0; i < count; i++)
        put(&codes, out, i, small_integer(draw(stream_key, first + i)));
}

static int8_t gathered_element(const struct ag_data *data, uint64_t step, long row, long column)
{
    const struct ag_shape *s = &data->shape;
    const size_t in_shard = (size_t)(column % s->per_rank) * (size_t)s->ld + (size_t)row;
    return (int8_t)small_integer(draw(key(data->seed, SHARD, step, (int)(column / s->per_rank)), in_shard));
}

void ag_data_gathered_line(const struct ag_data *data, uint64_t step, long line, int8_t *out)
{
    const struct ag_shape *s = &data->shape;
    for (long l = 0; l < s->k; l++)
        out[l] = s->sums ? gathered_element(data, step, line, l) : gathered_element(data, step, l, line);
}

void ag_data_weight_column(const struct ag_data *data, int rank, long f, int8_t *out)
{
    const struct ag_shape *s = &data->shape;
    const uint64_t stream_key = key(data->seed, WEIGHT, 0, rank);
    for (long l = 0; l < s->k; l++)
        out[l] = (int8_t)weight_value(draw(stream_key, (size_t)f * (size_t)s->k + (size_t)l), s->k);
}

void ag_data_weights(const struct ag_data *data, int rank, size_t first, size_t count, void *out)
{
    const uint64_t stream_key = key(data->seed, WEIGHT, 0, rank);
    const struct codes codes = codes_of(data);
    for (size_t i = 0; i < count; i++)
        put(&codes, out, i, weight_value(draw(stream_key, first + i), data->shape.k));
}

int ag_data_c(const struct ag_data *data, uint64_t step, size_t index)
{
    return small_integer(draw(key(data->seed, OUTPUT, step, 0), index));
}

void ag_data_cs(const struct ag_data *data, uint64_t step, size_t first, size_t count, void *out)
{
    const struct codes codes = codes_in(data->shape.c_dtype, data->shape.c_bytes);
    for (size_t i = 0; i < count; i++)
        put(&codes, out, i, ag_data_c(data, step, first + i));
}

int ag_data_bias(const struct ag_data *data, int rank, long row)
{
    return small_integer(draw(key(data->seed, BIAS, 0, rank), (uint64_t)row));
}

void ag_data_biases(const struct ag_data *data, int rank, void *out)
{
    const struct codes codes = codes_of(data);
    for (long row = 0; row < data->shape.m; row++)
        put(&codes, out, (size_t)row, ag_data_bias(data, rank, row));
}
