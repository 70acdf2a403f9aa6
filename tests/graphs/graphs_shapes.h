/* SPDX-License-Identifier: Apache-2.0 */
/* What the soak of graphs_soak.c gathers: in its 20 graphs, and outside of them. */
#ifndef TESTS_FORMS_GRAPHS_SHAPES_H
#define TESTS_FORMS_GRAPHS_SHAPES_H

#include <stdbool.h>
#include <stddef.h>

#define MOST 3 /* gathers of a graph */

/* In bytes. A peer maps 32 buffers of a rank, so most graphs have all of theirs in one. */
struct shape {
    size_t shard[MOST]; /* 0: no more */
    bool in_place, product, apart;
};

static const struct shape graph_shapes[] = {
    {.shard = {1}, .apart = true},
    {.shard = {3}, .in_place = true},
    {.shard = {100, 7}},
    {.shard = {255, 4097, 2}},
    {.shard = {5000}, .in_place = true},
    {.shard = {4096, 1, 12288}, .in_place = true},
    {.shard = {16384}, .product = true},
    {.shard = {16385}},
    {.shard = {40000}, .apart = true},
    {.shard = {65536}, .in_place = true},
    {.shard = {65537, 3}},
    {.shard = {16384, 20001}, .product = true, .in_place = true},
    {.shard = {32768, 32767, 32769}},
    {.shard = {70001}, .in_place = true},
    {.shard = {100003}, .apart = true},
    {.shard = {131072}, .in_place = true},
    {.shard = {512, 512, 512}, .in_place = true},
    {.shard = {49152}, .product = true, .apart = true},
    {.shard = {9999, 99, 999}, .apart = true},
    {.shard = {262147}},
};

static const struct shape eager_shapes[] = {
    {.shard = {2}},
    {.shard = {4097}, .in_place = true},
    {.shard = {16384}, .product = true},
    {.shard = {65536}, .in_place = true},
    {.shard = {30001}},
    {.shard = {8192}, .product = true},
    {.shard = {131073}, .apart = true},
    {.shard = {999}, .in_place = true},
    {.shard = {524287}, .apart = true},
};

#endif
