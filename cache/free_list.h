/* SPDX-License-Identifier: Apache-2.0 */
/* The free blocks of one device, by size class: which one serves a request, and which one goes when
 * there are too many. No locking: the caller's. */
#ifndef SLR_CACHE_FREE_LIST_H
#define SLR_CACHE_FREE_LIST_H

#include "cache/block.h"
#include "cache/classes.h"

struct slr_free_list {
    struct slr_block *head[SLR_CLASSES]; /* of each class's list */
    uint64_t bytes;
    uint64_t clock; /* counts the requests that blocks of the device served */
};

void slr_free_list_add(struct slr_free_list *list, struct slr_block *b);
void slr_free_list_remove(struct slr_free_list *list, struct slr_block *b);

/* The block that serves a request best, still in its list; NULL: none fits. */
struct slr_block *slr_free_list_fit(const struct slr_free_list *list, size_t bytes);

/* Whether the request's class has any block, fitting or not. */
bool slr_free_list_has_class(const struct slr_free_list *list, size_t bytes);

/* The unpinned block that is least worth keeping, still in its list; NULL: none. */
struct slr_block *slr_free_list_victim(const struct slr_free_list *list);

/* An unpinned block that has been kept since `ms` or longer, still in its list; NULL: none. */
struct slr_block *slr_free_list_since(const struct slr_free_list *list, uint64_t ms);

/* Bytes of unpinned blocks. */
uint64_t slr_free_list_unpinned(const struct slr_free_list *list);

#endif
