/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call is one exchange: each rank writes its part into its slot of the shared file, all wait, all read what they
 * need, all wait. Calls of one process must not overlap, as nccl-tests' do not.
 */
#include "mpi.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_RANKS 64
#define SLOT_BYTES 65536

struct shared {
    atomic_uint arrived;    /* at the present barrier */
    atomic_uint generation; /* barriers passed; the last rank to arrive adds one */
    unsigned char slots[MAX_RANKS][SLOT_BYTES];
};

static struct shared *shared;
static int rank, ranks;

static void fail(const char *what)
{
    fprintf(stderr, "one-host MPI, rank %d: %s\n", rank, what);
    exit(1);
}

static int number(const char *name, int limit)
{
    const char *text = getenv(name);
    int value = text ? atoi(text) : -1;
    if (value < 0 || value > limit)
        fail(name);
    return value;
}

int MPI_Init(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    const char *path = getenv("ONE_HOST_MPI_FILE");
    rank = number("RANK", MAX_RANKS - 1);
    ranks = number("WORLD_SIZE", MAX_RANKS);
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0 || ftruncate(file, sizeof(struct shared)) != 0)
        fail("ONE_HOST_MPI_FILE can not be opened");
    shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED)
        fail("ONE_HOST_MPI_FILE can not be mapped");
    close(file);
    return MPI_Barrier(MPI_COMM_WORLD);
}

int MPI_Finalize(void)
{
    return MPI_Barrier(MPI_COMM_WORLD);
}

int MPI_Comm_rank(MPI_Comm comm, int *out)
{
    (void)comm;
    *out = rank;
    return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm comm, int *out)
{
    (void)comm;
    *out = ranks;
    return MPI_SUCCESS;
}

int MPI_Barrier(MPI_Comm comm)
{
    (void)comm;
    unsigned before = atomic_load(&shared->generation);
    if (atomic_fetch_add(&shared->arrived, 1) + 1 == (unsigned)ranks) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->generation, 1);
    }
    while (atomic_load(&shared->generation) == before)
        sched_yield();
    return MPI_SUCCESS;
}

static size_t bytes_of(int count, MPI_Datatype type)
{
    static const size_t sizes[] = {
        [MPI_BYTE] = 1,
        [MPI_INT] = sizeof(int),
        [MPI_LONG] = sizeof(long),
        [MPI_LONG_LONG] = sizeof(long long),
        [MPI_INT64_T] = sizeof(int64_t),
        [MPI_DOUBLE] = sizeof(double),
    };
    size_t bytes = (size_t)count * sizes[type];
    if (type <= MPI_DATATYPE_NULL || type > MPI_DOUBLE || bytes > SLOT_BYTES)
        fail("a type that is not known here, or too many elements");
    return bytes;
}

/* Publishes this rank's part; after it all slots can be read, until `done`. */
static void publish(const void *part, size_t bytes)
{
    memcpy(shared->slots[rank], part, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
}

static int done(void)
{
    return MPI_Barrier(MPI_COMM_WORLD);
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    (void)comm;
    size_t bytes = bytes_of(count, type);
    publish(data, bytes);
    memcpy(data, shared->slots[root], bytes);
    return done();
}

static int gather(const void *from, size_t bytes, unsigned char *to)
{
    publish(from == MPI_IN_PLACE ? to + (size_t)rank * bytes : from, bytes);
    for (int r = 0; to && r < ranks; r++)
        memcpy(to + (size_t)r * bytes, shared->slots[r], bytes);
    return done();
}

int MPI_Allgather(const void *from, int count, MPI_Datatype type, void *to, int to_count, MPI_Datatype to_type,
                  MPI_Comm comm)
{
    (void)count, (void)type,
        (void)comm; /* what is sent is as long as what is received, and counts in place do not count */
    return gather(from, bytes_of(to_count, to_type), to);
}

int MPI_Gather(const void *from, int count, MPI_Datatype type, void *to, int to_count, MPI_Datatype to_type, int root,
               MPI_Comm comm)
{
    (void)to_count, (void)to_type, (void)comm;
    return gather(from, bytes_of(count, type), rank == root ? to : NULL);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    (void)key;
    publish(&color, sizeof color);
    for (int r = 0; r < ranks; r++)
        if (memcmp(shared->slots[r], &color, sizeof color) != 0)
            fail("MPI_Comm_split into several groups is not there");
    *out = comm;
    return done();
}

int MPI_Comm_free(MPI_Comm *comm)
{
    *comm = 0;
    return MPI_SUCCESS;
}

#define REDUCE(type, a, b, op)                                                                                         \
    do {                                                                                                               \
        type x, y;                                                                                                     \
        memcpy(&x, a, sizeof x);                                                                                       \
        memcpy(&y, b, sizeof y);                                                                                       \
        x = (op) == MPI_SUM ? x + y : (op) == MPI_MIN ? (x < y ? x : y) : (x > y ? x : y);                             \
        memcpy(a, &x, sizeof x);                                                                                       \
    } while (0)

static void reduce(unsigned char *into, const unsigned char *other, MPI_Datatype type, MPI_Op op)
{
    if (type == MPI_DOUBLE)
        REDUCE(double, into, other, op);
    else if (type == MPI_INT)
        REDUCE(int, into, other, op);
    else if (type == MPI_LONG || type == MPI_LONG_LONG || type == MPI_INT64_T)
        REDUCE(int64_t, into, other, op);
    else
        fail("MPI_Allreduce of a type that is not known here");
}

int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    (void)comm;
    size_t bytes = bytes_of(count, type), size = bytes_of(1, type);
    publish(from == MPI_IN_PLACE ? to : from, bytes);
    memcpy(to, shared->slots[0], bytes);
    for (int r = 1; r < ranks; r++)
        for (size_t at = 0; at < bytes; at += size)
            reduce((unsigned char *)to + at, shared->slots[r] + at, type, op);
    return done();
}
