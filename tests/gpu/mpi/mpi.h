/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of MPI that nccl-tests calls, for ranks that are processes of one host: enough to run its multi-process
 * programs where no MPI is installed. Names and meanings are those of the MPI standard; everything else of it is
 * missing.
 *
 * A rank learns its place from the environment: RANK, WORLD_SIZE and ONE_HOST_MPI_FILE, an empty file of its own for
 * each run, which the ranks map. A rank that ends early leaves the others waiting: whoever starts them ends them.
 */
#ifndef ONE_HOST_MPI_H
#define ONE_HOST_MPI_H

#ifdef __cplusplus
extern "C" {
#endif

typedef int MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Op;

enum { MPI_SUCCESS = 0 };
enum { MPI_COMM_WORLD = 1 };
enum { MPI_DATATYPE_NULL = 0, MPI_BYTE, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_INT64_T, MPI_DOUBLE };
enum { MPI_SUM = 1, MPI_MIN, MPI_MAX };
#define MPI_IN_PLACE ((void *)-1)

int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);
int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
/* Only the split into one group of all ranks, in their order. */
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out);
int MPI_Comm_free(MPI_Comm *comm);
int MPI_Barrier(MPI_Comm comm);
int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm);
/* With MPI_IN_PLACE the rank's part is read at its place in `to`. */
int MPI_Allgather(const void *from, int count, MPI_Datatype type, void *to, int to_count, MPI_Datatype to_type,
                  MPI_Comm comm);
int MPI_Gather(const void *from, int count, MPI_Datatype type, void *to, int to_count, MPI_Datatype to_type, int root,
               MPI_Comm comm);
int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);

#ifdef __cplusplus
}
#endif

#endif
