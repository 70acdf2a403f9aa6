/* SPDX-License-Identifier: Apache-2.0 */
/* The host's clock, for waits and their limits. */
#ifndef SLR_BASE_CLOCK_H
#define SLR_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Milliseconds of CLOCK_MONOTONIC. */
static inline uint64_t slr_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Nanoseconds of it. */
static inline uint64_t slr_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Sleeps for so many milliseconds, or less when a signal comes. */
static inline void slr_sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

#endif
