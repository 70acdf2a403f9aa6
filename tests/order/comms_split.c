/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators made from others: split, shrunk, grown. */
#include "comms.h"

#include <string.h>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 0)
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config);
ncclResult_t pncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                           ncclConfig_t *config);
#endif

static void split_colour(struct rank *r)
{
    ncclComm_t all = comm_first(r), half;
    NCCL(ncclCommSplit(all, r->rank % 2, r->rank, &half, NULL));
    check_one(half, "split by colour");
    check_one(all, "its parent");
    NCCL(ncclCommDestroy(half));
    NCCL(ncclCommDestroy(all));
}

/* The order of the new ranks is the reverse of the old. */
static void split_reversed(struct rank *r)
{
    ncclComm_t all = comm_first(r), other;
    int rank;
    NCCL(ncclCommSplit(all, 0, -r->rank, &other, NULL));
    NCCL(ncclCommUserRank(other, &rank));
    EXPECT(rank == r->nranks - 1 - r->rank, "rank %d became %d", r->rank, rank);
    check_one(other, "split with keys reversed");
    NCCL(ncclCommDestroy(all));
    check_one(other, "after its parent's end");
    NCCL(ncclCommDestroy(other));
}

static void split_no_colour(struct rank *r)
{
    ncclComm_t all = comm_first(r), some;
    for (int i = 0; i < 2; i++) {
        bool out = r->rank == i;
        NCCL(ncclCommSplit(all, out ? NCCL_SPLIT_NOCOLOR : 5, r->rank, &some, NULL));
        EXPECT(out == (some == NULL), "rank %d: a communicator without a colour, or none with", r->rank);
        if (some) {
            check_one(some, "split without one rank");
            NCCL(ncclCommDestroy(some));
        }
    }
    check_one(all, "the parent");
    NCCL(ncclCommDestroy(all));
}

/* The ranks of the children are of two hosts, where the parent's are three a host. */
static void split_some(struct rank *r)
{
    const bool out = r->rank % 3 == 0;
    ncclComm_t all = comm_first(r), some[2];
    for (int i = 0; i < 2; i++) {
        NCCL(ncclCommSplit(all, out ? NCCL_SPLIT_NOCOLOR : 5, r->rank, &some[i], NULL));
        if (!out)
            check_one(some[i], "split without a rank of each host");
    }
    check_one(all, "the parent");
    for (int i = 0; i < 2 && !out; i++)
        NCCL(ncclCommDestroy(some[i]));
    NCCL(ncclCommDestroy(all));
}

/* Several at once: of two hosts, of one, and of all. */
static void split_in_group(struct rank *r)
{
    const bool out = r->rank % 3 == 0;
    ncclComm_t all = comm_first(r), some, host, other;
    NCCL(ncclGroupStart());
    NCCL(ncclCommSplit(all, out ? NCCL_SPLIT_NOCOLOR : 5, r->rank, &some, NULL));
    NCCL(ncclCommSplit(all, r->rank / 3, r->rank, &host, NULL));
    NCCL(ncclCommSplit(all, 7, r->rank, &other, NULL));
    NCCL(ncclGroupEnd());
    check_one(host, "split in a group, of one host");
    check_one(other, "split in a group, of all");
    if (!out)
        check_one(some, "split in a group, of two hosts");
    NCCL(ncclCommDestroy(all));
    check_one(other, "after its parent's end");
    if (!out)
        NCCL(ncclCommDestroy(some));
    NCCL(ncclCommDestroy(host));
    NCCL(ncclCommDestroy(other));
}

static void split_of_split_some(struct rank *r)
{
    ncclComm_t all = comm_first(r), again, some;
    NCCL(ncclCommSplit(all, 0, r->rank, &again, NULL));
    NCCL(ncclCommDestroy(all));
    NCCL(ncclCommSplit(again, r->rank % 3 == 0 ? NCCL_SPLIT_NOCOLOR : 0, r->rank, &some, NULL));
    check_one(again, "split of all");
    NCCL(ncclCommDestroy(again));
    if (some) {
        check_one(some, "split of a split");
        NCCL(ncclCommDestroy(some));
    }
}

static void split_of_split(struct rank *r)
{
    ncclComm_t all = comm_first(r), half, pair, again;
    NCCL(ncclCommSplit(all, r->rank / 2, 0, &half, NULL));
    NCCL(ncclCommSplit(half, 0, -r->rank, &pair, NULL));
    NCCL(ncclCommSplit(half, 0, -r->rank, &again, NULL));
    check_one(pair, "split of a split");
    check_one(again, "the same split again");
    check_one(half, "its parent");
    check_one(all, "the first");
    NCCL(ncclCommDestroy(half));
    NCCL(ncclCommDestroy(pair));
    NCCL(ncclCommDestroy(all));
    NCCL(ncclCommDestroy(again));
}

static void shrink(struct rank *r)
{
    ncclComm_t all = comm_first(r), fewer;
    int last = r->nranks - 1;
    if (r->rank != last) {
        NCCL(ncclCommShrink(all, &last, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT));
        check_one(fewer, "shrunk");
        NCCL(ncclCommDestroy(fewer));
    }
    check_one(all, "the parent");
    NCCL(ncclCommDestroy(all));
}

/* One of some ranks of all makes an id, and the next of all joins them. Those that have nothing to tell, and are not
 * told, are at once in the call, where there may be no id yet. */
static ncclComm_t grown_by_next(const struct rank *r, ncclComm_t all, ncclComm_t some, int count, ncclConfig_t *config)
{
    const int by = count > 1; /* not the first, if there is another */
    ncclComm_t pair = NULL, grown = NULL;
    ncclUniqueId id;
    const bool joins = r->rank == count, makes = r->rank == by - (by == count);
    NCCL(ncclCommSplit(all, joins || makes ? 0 : NCCL_SPLIT_NOCOLOR, r->rank, &pair, NULL));
    if (makes) {
        sleep_ms(30);
        NCCL(ncclCommGetUniqueId(some, &id));
    }
    if (pair)
        tell(pair, &id, sizeof id, 0);
    if (r->rank <= count)
        NCCL(ncclCommGrow(joins ? NULL : some, count + 1, joins ? &id : NULL, joins ? count : -1, &grown, config));
    if (pair)
        NCCL(ncclCommDestroy(pair));
    return grown;
}

/* By one rank at a time, from one that is alone on. */
static void grow(struct rank *r)
{
    ncclComm_t all = comm_first(r), now = NULL;
    NCCL(ncclCommSplit(all, r->rank == 0 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &now, NULL));
    for (int count = 1; count < r->nranks; count++) {
        ncclComm_t grown = grown_by_next(r, all, now, count, NULL);
        if (grown)
            check_one(grown, "grown");
        if (now && count > 1)
            check_one(now, "the smaller one");
        if (now)
            NCCL(ncclCommDestroy(now));
        now = grown;
    }
    check_one(all, "the first");
    NCCL(ncclCommDestroy(now));
    NCCL(ncclCommDestroy(all));
}

/* The same one twice; the second time in a group with another that is made. A call that NCCL refuses is none. */
static void grow_again(struct rank *r)
{
    ncclComm_t all = comm_first(r), some, grown[3], refused;
    const bool joins = r->rank == r->nranks - 1;
    ncclUniqueId id;
    NCCL(ncclCommSplit(all, joins ? NCCL_SPLIT_NOCOLOR : 0, r->rank, &some, NULL));
    grown[0] = grown_by_next(r, all, some, r->nranks - 1, NULL);
    if (r->rank == 0) {
        NCCL(ncclCommGetUniqueId(some, &id));
        EXPECT(ncclCommGrow(some, r->nranks - 1, NULL, -1, &refused, NULL) == ncclInvalidArgument, "it does not grow");
    }
    tell(all, &id, sizeof id, 0);
    NCCL(ncclGroupStart());
    NCCL(ncclCommGrow(some, r->nranks, joins ? &id : NULL, joins ? r->rank : -1, &grown[1], NULL));
    NCCL(ncclCommSplit(all, 0, -r->rank, &grown[2], NULL));
    NCCL(ncclGroupEnd());
    for (int i = 0; i < 3; i++) {
        check_one(grown[i], "one of several");
        NCCL(ncclCommDestroy(grown[i]));
    }
    if (some)
        NCCL(ncclCommDestroy(some));
    NCCL(ncclCommDestroy(all));
}

/* The one that joins goes around slipring, as a rank without it does. */
static void grow_absent(struct rank *r)
{
    const bool joins = r->rank == r->nranks - 1;
    ncclComm_t all = comm_first(r), some, grown;
    ncclUniqueId id;
    NCCL(ncclCommSplit(all, joins ? NCCL_SPLIT_NOCOLOR : 0, r->rank, &some, NULL));
    if (r->rank == 0)
        NCCL(ncclCommGetUniqueId(some, &id));
    tell(all, &id, sizeof id, 0);
    if (joins)
        NCCL(pncclCommGrow(NULL, r->nranks, &id, r->rank, &grown, NULL));
    else
        NCCL(ncclCommGrow(some, r->nranks, NULL, -1, &grown, NULL));
    check_one(grown, "grown by one without slipring");
    NCCL(ncclCommDestroy(grown));
    if (some)
        NCCL(ncclCommDestroy(some));
    NCCL(ncclCommDestroy(all));
}

/* Not blocking, or some of them; the new one tells by itself. */
static void nonblocking_grow(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t all = comm_first(r), some, grown;
    const bool joins = r->rank == r->nranks - 1;
    NCCL(ncclCommSplit(all, joins ? NCCL_SPLIT_NOCOLOR : 0, r->rank, &some, NULL));
    for (int blocking = 0; blocking < 2; blocking++) {
        config.blocking = blocking && joins;
        grown = grown_by_next(r, all, some, r->nranks - 1, &config);
        settle(grown, config.blocking ? ncclSuccess : ncclInProgress);
        check_nonblocking(grown, "grown");
        end_nonblocking(grown);
    }
    if (some) {
        check_one(some, "the smaller one");
        NCCL(ncclCommDestroy(some));
    }
    NCCL(ncclCommDestroy(all));
}

const struct comm_case comm_split_cases[] = {
    {"split-colour", 4, split_colour},
    {"split-reversed", 3, split_reversed},
    {"split-no-colour", 3, split_no_colour},
    {"split-some", 6, split_some},
    {"split-in-group", 6, split_in_group},
    {"split-of-split-some", 6, split_of_split_some},
    {"split-of-split", 4, split_of_split},
    {"shrink", 3, shrink},
    {"grow", 4, grow},
    {"grow-again", 3, grow_again},
    {"grow-absent", 3, grow_absent},
    {"nonblocking-grow", 4, nonblocking_grow},
    {0},
};
