/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/archive.h"

#include <stdbool.h>
#include <string.h>

/* ---- gzip (RFC 1952), with the blocks of RFC 1951 that are stored ---- */

static void put_little(FILE *to, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        putc((int)(value >> 8 * i & 0xff), to);
}

static uint32_t crc_of(uint32_t crc, const unsigned char *at, size_t n)
{
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void put_block(struct archive *a, const void *bytes, size_t n, bool last)
{
    putc(last, a->to);
    put_little(a->to, (uint32_t)n, 2);
    put_little(a->to, ~(uint32_t)n & 0xffff, 2);
    fwrite(bytes, 1, n, a->to);
    a->crc = crc_of(a->crc, bytes, n);
    a->bytes += (uint32_t)n;
}

static void put(struct archive *a, const void *bytes, size_t n)
{
    enum { MOST = 65535 };
    for (const char *at = bytes; n > 0;) {
        const size_t part = n < MOST ? n : MOST;
        put_block(a, at, part, false);
        at += part;
        n -= part;
    }
}

/* ---- tar (ustar) ---- */

enum { BLOCK = 512 };

struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], time[12], sum[8], type, link[100], magic[8], user[32], group[32],
        device[16], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a header is a block");

void archive_begin(struct archive *a, FILE *to, long long time)
{
    static const unsigned char begin[10] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
    *a = (struct archive){.to = to, .time = time};
    fwrite(begin, 1, sizeof begin, to);
}

void archive_add(struct archive *a, const char *name, const char *bytes, size_t n)
{
    static const char zeros[BLOCK];
    struct header h = {.mode = "0000644", .uid = "0000000", .gid = "0000000", .type = '0', .magic = "ustar"};
    unsigned sum = 0;
    snprintf(h.name, sizeof h.name, "%s", name);
    snprintf(h.size, sizeof h.size, "%011llo", (unsigned long long)n);
    snprintf(h.time, sizeof h.time, "%011llo", (unsigned long long)a->time);
    memcpy(h.magic + 6, "00", 2);
    memset(h.sum, ' ', sizeof h.sum); /* as which it counts */
    for (size_t i = 0; i < sizeof h; i++)
        sum += ((const unsigned char *)&h)[i];
    snprintf(h.sum, sizeof h.sum, "%06o", sum);
    put(a, &h, sizeof h);
    put(a, bytes, n);
    put(a, zeros, (BLOCK - n % BLOCK) % BLOCK);
}

void archive_end(struct archive *a)
{
    static const char zeros[2 * BLOCK];
    put_block(a, zeros, sizeof zeros, true);
    put_little(a->to, a->crc, 4);
    put_little(a->to, a->bytes, 4);
}
