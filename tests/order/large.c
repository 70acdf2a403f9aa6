/* SPDX-License-Identifier: Apache-2.0 */
/* Shards that lie beyond 2 and 4 GiB: two ranks, int8, in place; every byte of the result is compared.
 *
 *   large [SHARD_BYTES]
 */
#include "forms.h"

#include <string.h>

#define WINDOW ((size_t)16 << 20) /* through host memory at a time */

/* Cheap, and different at every offset. Billions of bytes: not for a sanitizer, which would look at each. */
__attribute__((no_sanitize("address", "undefined"))) static void pattern(void *host, size_t at, size_t n, int rank)
{
    uint64_t word = at / 8 + ((uint64_t)rank << 60) + 1;
    uint64_t *words = host, v;
    for (size_t i = 0; i < n / 8; i++, word++) {
        v = word * 0x9e3779b97f4a7c15u;
        words[i] = v ^ v >> 29;
    }
    v = word * 0x9e3779b97f4a7c15u;
    v ^= v >> 29;
    memcpy(words + n / 8, &v, n % 8);
}

static void fill_shard(uint8_t *shard, size_t bytes, int rank, uint8_t *host)
{
    for (size_t at = 0; at < bytes; at += WINDOW) {
        size_t n = bytes - at < WINDOW ? bytes - at : WINDOW;
        pattern(host, at, n, rank);
        to_device(shard + at, host, n);
    }
}

static void check_shard(const uint8_t *shard, size_t bytes, const struct rank *r, int owner, uint8_t *host,
                        uint8_t *want)
{
    for (size_t at = 0; at < bytes; at += WINDOW) {
        size_t n = bytes - at < WINDOW ? bytes - at : WINDOW;
        CUDA(cudaMemcpy(host, shard + at, n, cudaMemcpyDeviceToHost));
        pattern(want, at, n, owner);
        if (!memcmp(host, want, n))
            continue;
        size_t i = 0;
        while (host[i] == want[i])
            i++;
        wrong("rank %d: shard %d: byte %zu is %02x, expected %02x", r->rank, owner, at + i, host[i], want[i]);
        return;
    }
}

static void body(struct rank *r)
{
    size_t shard = *(size_t *)r->arg;
    uint8_t *recv, *host = malloc(WINDOW), *want = malloc(WINDOW);
    rank_open(r);
    CUDA(cudaMalloc((void **)&recv, shard * (size_t)r->nranks));
    fill_shard(recv + (size_t)r->rank * shard, shard, r->rank, host);
    NCCL(ncclAllGather(recv + (size_t)r->rank * shard, recv, shard, ncclInt8, r->comm, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    for (int owner = 0; owner < r->nranks; owner++)
        check_shard(recv + (size_t)owner * shard, shard, r, owner, host, want);
    CUDA(cudaFree(recv));
    free(host);
    free(want);
    rank_close(r);
}

int main(int argc, char **argv)
{
    size_t shard = argc > 1 ? strtoull(argv[1], NULL, 0) : ((size_t)22 << 30) / 10 + 5;
    return forms_run(2, 110, body, &shard);
}
