/* ag_gemm's command line. One table: the struct, the parser, --help and the JSON record all derive from it. */
#ifndef AG_OPTIONS_H
#define AG_OPTIONS_H

#include <stdio.h>

/* Exit statuses, also the state of a rank that has ended. */
enum ag_status { AG_OK = 0, AG_WRONG = 1, AG_USAGE = 2, AG_ERROR = 3, AG_TIMEOUT = 4 };

/* The choices of CHOICE options, in the order of the table's text. */
enum ag_form { AG_BN, AG_AT };
enum ag_dtype { AG_BF16, AG_FP16, AG_FP32, AG_FP64, AG_INT8 };
enum ag_api { AG_GEMMEX, AG_SGEMM, AG_DGEMM, AG_HGEMM, AG_BATCHED, AG_LT, AG_LT_BIAS };
enum ag_interpose { AG_NOTHING, AG_MEMSET, AG_COPY, AG_WRITE };
enum ag_check { AG_FULL, AG_SAMPLE, AG_OFF };

/* X(kind, field, default, metavar or choices, help) */
#define AG_OPTIONS(X)                                                                                                  \
    X(LONG, ranks, "2", "N",                                                                                           \
      "processes to fork, before CUDA is touched; rank r uses device r modulo the device count")                       \
    X(LONG, threads, "0", "N", "instead of processes: N threads of one process, one device each")                      \
    X(TEXT, id_file, "", "FILE",                                                                                       \
      "instead of forking: this process is one rank, started by torchrun, mpirun or srun; its rank comes from "        \
      "RANK/WORLD_SIZE/LOCAL_RANK, OMPI_COMM_WORLD_* or SLURM_*, and the ranks meet in FILE, on one host")             \
    X(LONG, m, "1024", "M", "rows of C")                                                                               \
    X(LONG, k, "1024", "K", "inner size: rows of the gathered matrix as it is stored")                                 \
    X(LONG, n, "1024", "N", "columns of C")                                                                            \
    X(CHOICE, form, "bn", "bn|at",                                                                                     \
      "column-major C(m x n) = op(A) * op(B). bn: B(k x n, op N) is gathered, each rank owns ceil(n / ranks) "         \
      "columns; A(k x m, op T) is the rank's weight. at: A(k x m, op T) is gathered, each rank owns "                  \
      "ceil(m / ranks) of its columns; B(k x n, op N) is the weight")                                                  \
    X(CHOICE, dtype, "bf16", "bf16|fp16|fp32|fp64|int8", "element type of all matrices; int8: gather only")            \
    X(CHOICE, api, "gemmex", "gemmex|sgemm|dgemm|hgemm|batched|lt|lt-bias",                                            \
      "cublasGemmEx, cublasSgemm, cublasDgemm, cublasHgemm, cublasGemmStridedBatchedEx with batch 1, cublasLtMatmul "  \
      "with the heuristic's algorithm and a workspace, or the same with a bias along the rows of C")                   \
    X(FLAG, ilp64, "0", "", "use the _64 form of the cuBLAS function")                                                 \
    X(LONG, bytes, "0", "B", "gather only, B bytes per rank (int8 unless --dtype is given)")                           \
    X(FLAG, in_place, "0", "", "the shard lies in its place in the gathered buffer")                                   \
    X(LONG, ld_pad, "0", "P", "leading dimension of the gathered matrix: k + P")                                       \
    X(REAL, beta, "0", "BETA", "C = A * B + BETA * C; exact for small integers")                                       \
    X(CHOICE, interpose_op, "none", "none|memset|copy|write",                                                          \
      "between gather and GEMM: memset of another buffer, copy of the gathered buffer to another one, or write "       \
      "zeros over the last gathered column")                                                                           \
    X(LONG, iters, "20", "I", "timed iterations of each loop")                                                         \
    X(LONG, warmup, "3", "W", "iterations before the timed ones")                                                      \
    X(CHOICE, check, "sample", "full|sample|off",                                                                      \
      "compare with an exact reference: every element, a sample that includes the borders of the shards, or "          \
      "nothing (the CPU then touches no matrix)")                                                                      \
    X(LONG, check_rounds, "2", "R", "checked rounds, each with new data")                                              \
    X(LONG, burst, "2", "B", "iterations in a checked round, enqueued without synchronising, each with its own data")  \
    X(FLAG, poison, "0", "", "fill outputs with 0xff (NaN) before each checked iteration")                             \
    X(FLAG, no_fill, "0", "", "with --check off: leave the matrices uninitialised")                                    \
    X(LONG, seed, "1", "SEED", "seed of all data")                                                                     \
    X(FLAG, one_gpu, "0", "",                                                                                          \
      "all ranks on device 0; sets NCCL_HOSTID per rank, and NCCL_NET=Socket and NCCL_SOCKET_IFNAME=lo unless set")    \
    X(LONG, streams, "1", "S", "streams per rank, each with its own matrices")                                         \
    X(FLAG, default_stream, "0", "", "use the legacy default stream")                                                  \
    X(FLAG, side_stream, "0", "",                                                                                      \
      "gather on another stream, which events order behind the GEMM's stream and before it, as PyTorch does")          \
    X(LONG, comms, "1", "C", "communicators per rank, used in turn")                                                   \
    X(TEXT, json, "", "FILE", "write the results there")                                                               \
    X(TEXT, label, "", "TEXT", "copied into the results")                                                              \
    X(LONG, kill_rank, "-1", "R", "fault test: rank R ends with SIGKILL")                                              \
    X(TEXT, kill_at, "init", "PHASE[:I]",                                                                              \
      "when: init, comm, buffers, check, warmup, gemm, gather, sequence, whole or finish, at its iteration I")         \
    X(LONG, timeout, "300", "S", "seconds for the whole run; then each rank's place is printed")                       \
    X(LONG, grace, "10", "S", "seconds that the other ranks get to end after one has failed")

struct ag_options {
#define LONG long
#define REAL double
#define FLAG int
#define CHOICE int
#define TEXT const char *
#define X(kind, field, fallback, meta, help) kind field;
    AG_OPTIONS(X)
#undef X
#undef LONG
#undef REAL
#undef FLAG
#undef CHOICE
#undef TEXT
};

/* Fills `options`. Returns AG_OK, AG_USAGE after a message on stderr, or -1 when --help was printed. */
int ag_options_parse(struct ag_options *options, int argc, char **argv);

/* The options as members of a JSON object, without the braces. */
void ag_options_json(const struct ag_options *options, FILE *out);

/* The name of choice `index` of a CHOICE option ("form", "dtype", ...). Valid until the thread's next call. */
const char *ag_choice_name(const char *field, int index);

/* 1 when there is no GEMM. */
static inline int ag_gather_only(const struct ag_options *options)
{
    return options->bytes > 0 || options->dtype == AG_INT8;
}

/* `text` as a JSON string. */
void ag_json_string(FILE *out, const char *text);

#endif
