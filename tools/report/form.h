/* SPDX-License-Identifier: Apache-2.0 */
/* Figures in words: bytes, times, shares. Each returns `buf`, which FORM_ROOM bytes are enough
 * for. */
#ifndef SLR_TOOLS_FORM_H
#define SLR_TOOLS_FORM_H

#include <stdint.h>

enum { FORM_ROOM = 40 };

const char *form_bytes(char *buf, double bytes); /* "8 MiB", "1.5 GiB" */
const char *form_time(char *buf, double ns);     /* "45.6 µs", "1.23 ms" */
const char *form_count(char *buf, uint64_t n);
const char *form_share(char *buf, double share); /* 0..1: "87%"; below 0: "-" */

#endif
