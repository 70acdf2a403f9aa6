/* SPDX-License-Identifier: Apache-2.0 */
/* Size classes of the block cache.
 *
 *   up to 4 KiB        multiples of 512 bytes
 *   up to 2 MiB        8 classes for each power of two
 *   up to 16 MiB       multiples of 2 MiB, the driver's page: what lies between is used up anyway
 *   above              8 classes for each power of two, all of them multiples of 2 MiB
 *
 * So a block is larger than what was asked for by less than 1/8 of that, rounding to the driver's
 * granularity aside.
 */
#ifndef SLR_CACHE_CLASSES_H
#define SLR_CACHE_CLASSES_H

#include <stddef.h>

#define SLR_CLASSES (64 * 8)
#define SLR_CLASS_MAX ((size_t)1 << 62) /* larger requests have no class */

/* Size of the smallest class that holds `bytes` (1..SLR_CLASS_MAX). */
size_t slr_class_size(size_t bytes);

/* Its number, below SLR_CLASSES; grows with the size. */
unsigned slr_class_index(size_t bytes);

/* `bytes` rounded to the driver's granularity only; never more than slr_class_size. */
size_t slr_class_exact(size_t bytes);

#endif
