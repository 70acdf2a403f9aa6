/* SPDX-License-Identifier: Apache-2.0 */
/* What the folder keeps of a communicator: places.h says who writes it. */
#ifndef SLR_PLUGIN_PLACES_PLACES_IMPL_H
#define SLR_PLUGIN_PLACES_PLACES_IMPL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/counters.h"

#define SLR_PLACES 512u
#define SLR_PLACES_ALL (SLR_PLACES + 33u)
#define SLR_PLACES_FIRST 1024u /* a power of two: calls below are listed */
#define SLR_PLACES_WINDOW 384u
#define SLR_PLACES_WINDOWS 23u
#define SLR_PLACES_LISTED (SLR_PLACES_FIRST - 1 + SLR_PLACES_WINDOWS * SLR_PLACES_WINDOW)
#define SLR_PLACES_BUCKETS 256u
#define SLR_PLACES_LAST 512u /* a power of two, and more than a window */

/* The words of a place. An identity is ordinal << 1 | known; of a buffer elsewhere all are 0. */
enum slr_place_word { SLR_PLACE_SHAPE, SLR_PLACE_RECV, SLR_PLACE_SEND = 4, SLR_PLACE_WORDS = 7 };
enum slr_place_shape {
    SLR_PLACE_IN_PLACE = 1,
    SLR_PLACE_RECV_ELSEWHERE = 2,
    SLR_PLACE_SEND_ELSEWHERE = 4,
    SLR_PLACE_ELSEWHERE = 6,
    SLR_PLACE_KIND = 8, /* times enum slr_collective_id */
    SLR_PLACE_KINDS = 4,
    SLR_PLACE_SHARD = SLR_PLACE_KIND * SLR_PLACE_KINDS
};
_Static_assert((int)SLR_COLLECTIVES <= (int)SLR_PLACE_KINDS, "there is room for each");

struct slr_place_row {
    uint64_t word[SLR_PLACE_WORDS];
    uint64_t call;  /* its first */
    uint16_t after; /* place of the call that followed its latest call */
    uint16_t chain; /* next of its bucket + 1 */
};

struct slr_places {
    _Atomic uint64_t latest; /* number of the latest call */
    _Atomic uint32_t count;  /* places */
    _Atomic uint64_t more;   /* calls elsewhere */
    uint16_t before;         /* the latest call's place */
    uint16_t bucket[SLR_PLACES_BUCKETS];
    struct slr_place_row place[SLR_PLACES_ALL];
    _Atomic uint16_t listed[SLR_PLACES_LISTED];
    _Atomic uint64_t last[SLR_PLACES_LAST]; /* call << 16 | place + 1, by call */
    _Atomic uint64_t *_Atomic callers;      /* [SLR_PLACES_LISTED]: callers/callers.h; NULL: no call has a name */
    /* What has been logged. */
    uint32_t places_told, listed_told;
    bool ended;
    struct slr_place_names *names[SLR_PLACES_ALL];
};

/* Of a call, -1: not listed; and how many of the listed ones are not above it. */
static inline int slr_places_slot(uint64_t call)
{
    if (call < SLR_PLACES_FIRST)
        return (int)call - 1;
    const unsigned power = 63u - (unsigned)__builtin_clzll(call), window = power - 10;
    const uint64_t at = call - (UINT64_C(1) << power);
    return window < SLR_PLACES_WINDOWS && at < SLR_PLACES_WINDOW
               ? (int)(SLR_PLACES_FIRST - 1 + window * SLR_PLACES_WINDOW + at)
               : -1;
}
_Static_assert(SLR_PLACES_FIRST == 1u << 10, "the first window");

#endif
