/* SPDX-License-Identifier: Apache-2.0 */
/* Loads libslipring.so as NCCL loads a plugin, and drives every callback of every version of the tuner interface: with
 * the arguments that NCCL gives, and with such as can not be. Knows the interface only by the names that NCCL looks up.
 *
 *   tuner_load LIBRARY [COPIES]     COPIES: a second file to load and drive in turn; all have one state
 *
 * SLIPRING_TUNE_FILE is written by the program itself. Exit status 1 and the check's line at the first that fails. */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "plugin/abi/tuner.h"

#define CHECK(cond)                                                                                                    \
    ((cond) ? (void)0 : (fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond), fflush(NULL), _exit(1)))

static const char table[] = "# what the checks below expect\n"
                            "allgather bytes=..1M : algorithm=ring protocol=ll128 channels=4\n"
                            "allreduce registered=yes : algorithm=tree protocol=simple\n"
                            "allreduce bytes=7 : algorithm=pat protocol=ll\n"
                            "allreduce : algorithm=nvls\n"
                            "broadcast ranks=8 nodes=2 : channels=3\n"
                            "broadcast bytes=1K..2K : protocol=ll\n"
                            "reduce : algorithm=collnetchain protocol=simple\n";

static _Atomic int lines;

__attribute__((format(printf, 5, 6))) static void mock_log(enum slr_nccl_log_level level, unsigned long subsystems,
                                                           const char *file, int line, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    CHECK(level >= SLR_NCCL_LOG_NONE && level <= SLR_NCCL_LOG_TRACE && subsystems && file && line > 0 && text[0]);
    lines++;
}

typedef float costs[SLR_NCCL_ALGOS][SLR_NCCL_PROTOS];

/* Rings and trees; ring and Simple cheapest; everything else excluded. */
static void fill(costs c)
{
    for (int a = 0; a < SLR_NCCL_ALGOS; a++)
        for (int p = 0; p < SLR_NCCL_PROTOS; p++)
            c[a][p] = a == SLR_NCCL_RING ? 10.0f + (float)(2 - p) : a == SLR_NCCL_TREE ? 20.0f + (float)p : -1.0f;
}

/* What NCCL would take: the least that is not negative. */
static int winner(costs c)
{
    int best = -1;
    for (int i = 0; i < SLR_NCCL_ALGOS * SLR_NCCL_PROTOS; i++) {
        float cost = c[i / SLR_NCCL_PROTOS][i % SLR_NCCL_PROTOS];
        if (cost >= 0 && (best < 0 || cost < c[best / SLR_NCCL_PROTOS][best % SLR_NCCL_PROTOS]))
            best = i;
    }
    return best;
}
#define PAIR(a, p) ((a)*SLR_NCCL_PROTOS + (p))

/* Exactly one entry may differ from fill()'s, and that is 0. */
static int changed(costs c)
{
    costs before;
    int n = 0;
    fill(before);
    for (int a = 0; a < SLR_NCCL_ALGOS; a++)
        for (int p = 0; p < SLR_NCCL_PROTOS; p++)
            if (c[a][p] != before[a][p]) {
                CHECK(c[a][p] == 0 && before[a][p] >= 0);
                n++;
            }
    return n;
}

/* One interface of v3 and later, whatever it is called there. */
struct tuner {
    int version;
    const void *symbol;
};

static void *init(const struct tuner *t, size_t nranks, size_t nnodes)
{
    struct slr_nvl_domains domains = {1, 8, 8};
    struct slr_tuner_constants constants, before;
    void *context = NULL;
    memset(&constants, 0x5a, sizeof constants);
    before = constants;
    ncclResult_t r = ncclInternalError;
    switch (t->version) {
    case 2:
        r = ((const struct slr_tuner_v2 *)t->symbol)->init(nranks, nnodes, mock_log, &context);
        break;
    case 3:
        r = ((const struct slr_tuner_v3 *)t->symbol)->init(nranks, nnodes, mock_log, &context);
        break;
    case 4:
        r = ((const struct slr_tuner_v4 *)t->symbol)->init(nranks, nnodes, mock_log, &context);
        break;
    case 5:
        r = ((const struct slr_tuner_v5 *)t->symbol)
                ->init(&context, 0xfeedu, nranks, nnodes, mock_log, &domains, &constants);
        break;
    case 6:
        r = ((const struct slr_tuner_v6 *)t->symbol)
                ->init(&context, 0xfeedu, nranks, nnodes, mock_log, &domains, &constants);
        break;
    }
    CHECK(r == ncclSuccess && context);
    CHECK(memcmp(&constants, &before, sizeof before) == 0); /* NCCL's cost model is not touched */
    return context;
}

static ncclResult_t end(const struct tuner *t, void *context)
{
    switch (t->version) {
    case 2:
        return ((const struct slr_tuner_v2 *)t->symbol)->destroy(context);
    case 3:
        return ((const struct slr_tuner_v3 *)t->symbol)->destroy(context);
    case 4:
        return ((const struct slr_tuner_v4 *)t->symbol)->destroy(context);
    case 5:
        return ((const struct slr_tuner_v5 *)t->symbol)->finalize(context);
    default:
        return ((const struct slr_tuner_v6 *)t->symbol)->finalize(context);
    }
}

static ncclResult_t ask(const struct tuner *t, void *context, int func, size_t bytes, float **c, int algos, int protos,
                        int registered, int *channels)
{
    enum slr_nccl_func f = (enum slr_nccl_func)func;
    switch (t->version) {
    case 3:
        return ((const struct slr_tuner_v3 *)t->symbol)
            ->get_coll_info(context, f, bytes, 1, c, algos, protos, channels);
    case 4:
        return ((const struct slr_tuner_v4 *)t->symbol)
            ->get_coll_info(context, f, bytes, 1, c, algos, protos, registered, channels);
    case 5:
        return ((const struct slr_tuner_v5 *)t->symbol)
            ->get_coll_info(context, f, bytes, 1, c, algos, protos, registered, channels);
    default:
        return ((const struct slr_tuner_v6 *)t->symbol)
            ->get_coll_info(context, f, bytes, 1, c, algos, protos, registered, channels);
    }
}

/* The usual call: which pair wins, how many channels; -1 and 0: NCCL's. */
static void expect(const struct tuner *t, void *context, int func, size_t bytes, int registered, int pair, int wanted)
{
    costs c;
    int channels = 0;
    fill(c);
    CHECK(ask(t, context, func, bytes, (float **)c, SLR_NCCL_ALGOS, SLR_NCCL_PROTOS, registered, &channels) ==
          ncclSuccess);
    CHECK(changed(c) == (pair >= 0));
    CHECK(winner(c) == (pair >= 0 ? pair : PAIR(SLR_NCCL_RING, SLR_NCCL_SIMPLE)));
    CHECK(channels == wanted);
}

static void usual(const struct tuner *t)
{
    void *context = init(t, 8, 2), *other = init(t, 4, 1);
    int tree = PAIR(SLR_NCCL_TREE, SLR_NCCL_SIMPLE);
    expect(t, context, SLR_NCCL_ALL_GATHER, 4096, 0, PAIR(SLR_NCCL_RING, SLR_NCCL_LL128), 4);
    expect(t, context, SLR_NCCL_ALL_GATHER, 1 << 20, 0, PAIR(SLR_NCCL_RING, SLR_NCCL_LL128), 4);
    expect(t, context, SLR_NCCL_ALL_GATHER, (1 << 20) + 1, 0, -1, 0);
    expect(t, context, SLR_NCCL_ALL_REDUCE, 4096, 1, t->version >= 4 ? tree : -1, 0);
    expect(t, context, SLR_NCCL_ALL_REDUCE, 4096, 0, -1, 0); /* NVLS is excluded */
    expect(t, context, SLR_NCCL_BROADCAST, 1024, 0, -1, 3);
    expect(t, other, SLR_NCCL_BROADCAST, 1024, 0, PAIR(SLR_NCCL_RING, SLR_NCCL_LL), 0);
    expect(t, other, SLR_NCCL_REDUCE, 1024, 0, -1, 0);
    expect(t, other, SLR_NCCL_REDUCE_SCATTER, 1024, 0, -1, 0);
    CHECK(end(t, context) == ncclSuccess && end(t, other) == ncclSuccess);
}

/* Whatever comes in: no error, no change, no crash. */
static void wrong(const struct tuner *t)
{
    void *context = init(t, 8, 1);
    costs c;
    int channels = 0;
    float **table_ = (float **)c;
    fill(c);
    CHECK(ask(t, NULL, SLR_NCCL_ALL_GATHER, 64, table_, 7, 3, 0, &channels) == ncclSuccess);
    CHECK(ask(t, context, SLR_NCCL_ALL_GATHER, 64, NULL, 7, 3, 0, &channels) == ncclSuccess);
    CHECK(ask(t, context, SLR_NCCL_ALL_GATHER, 64, table_, 0, 3, 0, &channels) == ncclSuccess);
    CHECK(ask(t, context, SLR_NCCL_ALL_GATHER, 64, table_, 7, -1, 0, &channels) == ncclSuccess);
    for (int func = -3; func < 32; func++)
        if (func < 0 || func > 4)
            CHECK(ask(t, context, func, 64, table_, 7, 3, 1, &channels) == ncclSuccess);
    CHECK(channels == 0 && changed(c) == 0);
    CHECK(ask(t, context, SLR_NCCL_ALL_GATHER, 64, table_, 7, 3, 0, NULL) ==
          ncclSuccess); /* nowhere for the channels */
    CHECK(winner(c) == PAIR(SLR_NCCL_RING, SLR_NCCL_LL128));
    fill(c); /* an older NCCL's table ends before PAT */
    CHECK(ask(t, context, SLR_NCCL_ALL_REDUCE, 7, table_, 6, 3, 0, &channels) == ncclSuccess && changed(c) == 0);
    for (int i = 0; i < 21; i++)
        c[i / 3][i % 3] = -1;
    CHECK(ask(t, context, SLR_NCCL_ALL_GATHER, 64, table_, 7, 3, 0, &channels) == ncclSuccess && channels == 0);
    CHECK(ask(t, context, SLR_NCCL_ALL_GATHER, SIZE_MAX, table_, 7, 3, 0, &channels) == ncclSuccess);
    CHECK(ask(t, context, SLR_NCCL_ALL_GATHER, 0, table_, 7, 3, 0, &channels) == ncclSuccess);
    CHECK(end(t, NULL) == ncclSuccess && end(t, context) == ncclSuccess);
}

static void old_interface(const struct slr_tuner_v2 *v2)
{
    struct tuner t = {2, v2};
    void *context = init(&t, 8, 2);
    int algo = -1, proto = -1, channels = 0;
    CHECK(v2->get_coll_info(context, SLR_NCCL_ALL_GATHER, 4096, 0, 0, 1, &algo, &proto, &channels) == ncclSuccess);
    CHECK(algo == SLR_NCCL_RING && proto == SLR_NCCL_LL128 && channels == 4);
    algo = proto = -1;
    channels = 0;
    CHECK(v2->get_coll_info(context, SLR_NCCL_REDUCE, 4096, 0, 1, 1, &algo, &proto, &channels) == ncclSuccess);
    CHECK(algo == -1 && proto == -1 && channels == 0); /* no CollNet here */
    CHECK(v2->get_coll_info(context, SLR_NCCL_REDUCE, 4096, 1, 1, 1, &algo, &proto, &channels) == ncclSuccess);
    CHECK(algo == SLR_NCCL_COLLNET_CHAIN && proto == SLR_NCCL_SIMPLE);
    algo = proto = -1;
    CHECK(v2->get_coll_info(context, SLR_NCCL_BROADCAST, 4096, 0, 0, 1, &algo, &proto, &channels) == ncclSuccess);
    CHECK(algo == -1 && proto == -1 && channels == 3);
    CHECK(v2->get_coll_info(context, SLR_NCCL_ALL_GATHER, 4096, 0, 0, 1, NULL, NULL, NULL) == ncclSuccess);
    CHECK(v2->get_coll_info(NULL, SLR_NCCL_ALL_GATHER, 4096, 0, 0, 1, &algo, &proto, &channels) == ncclSuccess);
    CHECK(v2->get_coll_info(context, (enum slr_nccl_func)77, 1, 0, 0, 1, &algo, &proto, &channels) == ncclSuccess);
    CHECK(v2->destroy(context) == ncclSuccess && v2->destroy(NULL) == ncclSuccess);
}

static void *many(void *arg)
{
    for (int i = 0; i < 10; i++)
        usual(arg);
    return NULL;
}

/* Several communicators, each on a thread. */
static void threads(struct tuner *t)
{
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, many, t) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

static void drive(const char *library)
{
    char name[32];
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(handle);
    CHECK(!dlsym(handle, "ncclTunerPlugin_v1") && !dlsym(handle, "ncclTunerPlugin_v7"));
    for (int v = 2; v <= 6; v++) {
        snprintf(name, sizeof name, "ncclTunerPlugin_v%d", v);
        struct tuner t = {v, dlsym(handle, name)};
        CHECK(t.symbol && strcmp(*(const char *const *)t.symbol, "slipring") == 0);
        if (v == 2) {
            old_interface(t.symbol);
            continue;
        }
        usual(&t);
        wrong(&t);
        threads(&t);
    }
    CHECK(((const struct slr_tuner_v6 *)dlsym(handle, "ncclTunerPlugin_v6"))->get_chunk_size == NULL);
    dlclose(handle);
}

__attribute__((unused)) static int own_threads(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e; dir && (e = readdir(dir));)
        n += e->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n;
}

/* A thread that has been joined may be seen for a moment longer. */
__attribute__((unused)) static bool threads_come_back_to(int before)
{
    for (int ms = 0; ms < 5000 && own_threads() != before; ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return own_threads() == before;
}

int main(int argc, char **argv)
{
    char path[] = "/tmp/tuner_load-XXXXXX";
    int before = own_threads();
    (void)before;
    if (argc < 2)
        return 2;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, table, sizeof table - 1) == sizeof table - 1);
    close(fd);
    setenv("SLIPRING_TUNE_FILE", path, 1);
    for (int i = 1; i < argc; i++)
        drive(argv[i]);
    drive(argv[1]); /* NCCL closes the plugin with the last communicator, and may open it again */
    unlink(path);
    CHECK(lines > 0);
#ifndef __SANITIZE_THREAD__              /* which has a thread of its own, from the first one on */
    CHECK(threads_come_back_to(before)); /* a tuner brings no thread with it */
#endif
    return 0;
}
