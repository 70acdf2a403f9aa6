/* SPDX-License-Identifier: Apache-2.0 */
/* A .tar.gz of files that are in memory. The form is that of gzip, but nothing is compressed: so no library is needed,
 * and every tar unpacks it. */
#ifndef SLR_TOOLS_ARCHIVE_H
#define SLR_TOOLS_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct archive {
    FILE *to;
    uint32_t crc, bytes; /* of what has been written */
    long long time;      /* seconds since 1970: when its files were changed */
};

void archive_begin(struct archive *a, FILE *to, long long time);
/* `name`: below 100 bytes. */
void archive_add(struct archive *a, const char *name, const char *bytes, size_t n);
void archive_end(struct archive *a);

#endif
