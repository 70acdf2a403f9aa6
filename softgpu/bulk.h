/* SPDX-License-Identifier: Apache-2.0 */
/* What a device, or NCCL, does to many bytes of memory.
 *
 * ThreadSanitizer's memcpy looks at every byte, which takes ten times as long as the copy. Here it sees one byte of each
 * 256, so of two such accesses every overlap of so many bytes. The race oracle (README.md) sees every byte. */
#ifndef SOFTGPU_BULK_H
#define SOFTGPU_BULK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_THREAD__)
#define BULK_SAMPLED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BULK_SAMPLED 1
#endif
#endif
#if defined(BULK_SAMPLED) && !defined(__x86_64__)
#undef BULK_SAMPLED
#endif

#define BULK_STEP 256 /* bytes */
#define BULK_MIN 1024

#ifdef BULK_SAMPLED
void __tsan_read1(void *p);
void __tsan_write1(void *p);

static inline void bulk_seen(const void *p, size_t n, void (*see)(void *))
{
    uintptr_t begin = (uintptr_t)p, end = begin + n;
    for (uintptr_t at = (begin + BULK_STEP - 1) & ~(uintptr_t)(BULK_STEP - 1); at < end; at += BULK_STEP)
        see((void *)at);
    see((void *)(end - 1));
}
#endif

/* As memmove(). */
static inline void bulk_copy(void *to, const void *from, size_t n)
{
#ifdef BULK_SAMPLED
    uintptr_t d = (uintptr_t)to, s = (uintptr_t)from;
    if (n >= BULK_MIN && (d + n <= s || s + n <= d)) {
        bulk_seen(from, n, __tsan_read1);
        bulk_seen(to, n, __tsan_write1);
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
        return;
    }
#endif
    memmove(to, from, n);
}

/* As memset(). */
static inline void bulk_fill(void *to, int value, size_t n)
{
#ifdef BULK_SAMPLED
    if (n >= BULK_MIN) {
        bulk_seen(to, n, __tsan_write1);
        __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(value) : "memory");
        return;
    }
#endif
    memset(to, value, n);
}

#endif
