/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/classes.h"

#define GRAIN ((size_t)512)
#define PAGE ((size_t)2 << 20)

static size_t round_up(size_t bytes, size_t step)
{
    return (bytes + step - 1) / step * step;
}

/* The k with 2^k < bytes <= 2^(k+1); 0 for 1. */
static unsigned octave(size_t bytes)
{
    return bytes < 2 ? 0 : 63 - (unsigned)__builtin_clzl(bytes - 1);
}

static size_t step_of(size_t bytes)
{
    size_t step = ((size_t)1 << octave(bytes)) / 8;
    size_t least = bytes <= PAGE ? GRAIN : PAGE;
    return step > least ? step : least;
}

size_t slr_class_size(size_t bytes)
{
    return round_up(bytes, step_of(bytes));
}

/* Counts eighths of octaves; where steps are coarser than that, numbers are left out. */
unsigned slr_class_index(size_t bytes)
{
    size_t size = slr_class_size(bytes);
    unsigned k = octave(size);
    size_t base = (size_t)1 << k;
    return k * 8 + (unsigned)((size - base) / (base / 8)) - 1;
}

size_t slr_class_exact(size_t bytes)
{
    return round_up(bytes, bytes <= PAGE ? GRAIN : PAGE);
}
