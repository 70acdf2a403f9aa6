/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/util/consumer.h"

#include <cublas_v2.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/hash.h"

static const char ops[] = {[CUBLAS_OP_N] = 'n', [CUBLAS_OP_T] = 't', [CUBLAS_OP_C] = 'c'};

/* The types that GEMMs of today have; others by their number: t17. */
static const struct {
    int32_t type;
    const char *name;
} types[] = {
    {CUDA_R_16BF, "bf16"}, {CUDA_R_16F, "fp16"},        {CUDA_R_32F, "fp32"},        {CUDA_R_64F, "fp64"},
    {CUDA_R_8I, "int8"},   {CUDA_R_8F_E4M3, "fp8e4m3"}, {CUDA_R_8F_E5M2, "fp8e5m2"}, {CUDA_R_32I, "int32"},
};
#define TYPES (sizeof types / sizeof *types)

static bool is_one(const struct slr_consumer *gemm)
{
    return gemm->m != 0;
}

const char *slr_consumer_trans_text(const struct slr_consumer *gemm, char *buf)
{
    for (int i = 0; i < 2; i++)
        buf[i] = (size_t)gemm->op[i] < sizeof ops ? ops[gemm->op[i]] : '?';
    buf[2] = '\0';
    return is_one(gemm) ? buf : "-";
}

static size_t put_type(int32_t type, char *buf, size_t size)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].type == type)
            return (size_t)snprintf(buf, size, "%s", types[i].name);
    return (size_t)snprintf(buf, size, "t%d", type);
}

const char *slr_consumer_type_text(const struct slr_consumer *gemm, char *buf)
{
    const int32_t *type = gemm->type;
    const bool equal = type[SLR_CONSUMER_A] == type[SLR_CONSUMER_B] && type[SLR_CONSUMER_A] == type[SLR_CONSUMER_C];
    size_t at = put_type(type[0], buf, SLR_CONSUMER_TEXT);
    for (int i = 1; i < 3 && !equal; i++) {
        buf[at++] = ',';
        at += put_type(type[i], buf + at, SLR_CONSUMER_TEXT - at);
    }
    return is_one(gemm) ? buf : "-";
}

const char *slr_consumer_gathered_text(const struct slr_consumer *gemm)
{
    return !is_one(gemm) ? "-" : gemm->gathered == SLR_CONSUMER_A ? "a" : gemm->gathered == SLR_CONSUMER_B ? "b" : "c";
}

bool slr_consumer_trans_read(struct slr_consumer *gemm, const char *at, size_t len)
{
    for (int i = 0; i < 2 && len == 2; i++) {
        const char *op = memchr(ops, at[i] | 0x20, sizeof ops); /* a capital is a small letter but for this bit */
        if (!op)
            return false;
        gemm->op[i] = (int32_t)(op - ops);
    }
    return len == 2;
}

static bool read_type(int32_t *type, const char *at, size_t len)
{
    for (size_t i = 0; i < TYPES; i++)
        if (strlen(types[i].name) == len && strncasecmp(types[i].name, at, len) == 0) {
            *type = types[i].type;
            return true;
        }
    *type = 0;
    for (size_t i = 1; i < len; i++) {
        if (at[i] < '0' || at[i] > '9' || i > 6)
            return false;
        *type = *type * 10 + (at[i] - '0');
    }
    return len > 1 && (*at | 0x20) == 't';
}

bool slr_consumer_type_read(struct slr_consumer *gemm, const char *at, size_t len)
{
    int n = 0;
    for (const char *end = at + len, *next; n < 3; at = next + 1, n++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        next = comma ? comma : end;
        if (!read_type(&gemm->type[n], at, (size_t)(next - at)))
            return false;
        if (!comma && n == 0)
            gemm->type[1] = gemm->type[2] = gemm->type[0];
        if (!comma)
            return n == 0 || n == 2;
    }
    return false;
}

bool slr_consumer_gathered_read(struct slr_consumer *gemm, const char *at, size_t len)
{
    const char letter = len == 1 ? (char)(*at | 0x20) : '\0';
    gemm->gathered = letter == 'b' ? SLR_CONSUMER_B : SLR_CONSUMER_A;
    return letter == 'a' || letter == 'b';
}

uint64_t slr_consumer_hash(const struct slr_consumer *gemm)
{
    const uint64_t word[] = {(uint64_t)gemm->m,
                             (uint64_t)gemm->n,
                             (uint64_t)gemm->k,
                             (uint64_t)gemm->batch,
                             (uint64_t)gemm->op[0] << 32 | (uint64_t)gemm->op[1],
                             (uint64_t)gemm->type[0] << 32 | (uint64_t)gemm->type[1],
                             (uint64_t)gemm->type[2] << 32 | (uint64_t)gemm->gathered};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        hash = slr_mix(hash, word[i]);
    return is_one(gemm) ? hash | 1 : 0;
}

static bool fits(int64_t rule, int64_t value)
{
    return rule == -1 || rule == value;
}

bool slr_consumer_fits(const struct slr_consumer *rule, const struct slr_consumer *gemm)
{
    bool all = fits(rule->m, gemm->m) && fits(rule->n, gemm->n) && fits(rule->k, gemm->k) &&
               fits(rule->batch, gemm->batch) && fits(rule->gathered, gemm->gathered);
    for (int i = 0; i < 2; i++)
        all = all && fits(rule->op[i], gemm->op[i]);
    for (int i = 0; i < 3; i++)
        all = all && fits(rule->type[i], gemm->type[i]);
    return all;
}
