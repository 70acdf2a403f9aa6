/* SPDX-License-Identifier: Apache-2.0 */
/* Loads libslipring.so as NCCL loads a profiler plugin and drives its tables with the events that NCCL makes.
 *
 *   profile_plugin LIBRARY CASE     0: as it should be. Log and settings by the environment (see CMakeLists.txt).
 *
 * Each case is one process: settings are read once. What the plugin found is in its log, which is read back.
 */
#include "profiler_driver.h"

#include <sys/wait.h>

/* ---- every version's table ---- */

static void drive_v1_to_v3(void)
{
    void *c = NULL, *h = (void *)1, *call = (void *)1;
    int mask = -1;
    struct slr_profile_event_v1 e1 = {.type = SLR_PROFILE_COLL, .rank = 3};
    const struct slr_profiler_v1 *v1 = table("ncclProfiler_v1");
    CHECK(v1->init(&c, &mask) == ncclSuccess && c && mask == (SLR_PROFILE_COLL | SLR_PROFILE_P2P));
    e1.coll.func = SLR_NCCL_ALL_REDUCE;
    e1.coll.datatype = ncclBfloat16;
    e1.coll.count = 1000;
    e1.coll.comm_hash = 0x111;
    e1.coll.algo = SLR_NCCL_NVLS;
    e1.coll.proto = SLR_NCCL_LL128;
    e1.coll.channels = 7;
    CHECK(v1->start_event(c, &h, &e1) == ncclSuccess && h);
    CHECK(v1->record_event_state(h, 17, NULL) == ncclSuccess && v1->stop_event(h) == ncclSuccess);
    e1.type = SLR_PROFILE_GROUP;
    CHECK(v1->start_event(c, &call, &e1) == ncclSuccess && !call);
    CHECK(v1->finalize(c) == ncclSuccess);
    expect("\"event\":\"nccl_sum\",\"comm\":\"?\",\"comm_hash\":\"111\",\"crank\":3,\"nranks\":-1,"
           "\"func\":\"AllReduce\","
           "\"bytes\":2000,\"dtype\":\"bf16\",\"reason\":\"-\",\"algo\":\"NVLS\",\"proto\":\"LL128\",\"channels\":7,"
           "\"calls\":1,\"timed\":0,",
           1);

    struct slr_profile_event_v2 e2 = {.type = SLR_PROFILE_COLL, .rank = 1};
    const struct slr_profiler_v2 *v2 = table("ncclProfiler_v2");
    CHECK(v2->init(&c, &mask) == ncclSuccess && c && mask == (SLR_PROFILE_COLL | SLR_PROFILE_P2P));
    e2.coll.func = "ReduceScatter";
    e2.coll.datatype = "ncclFloat64";
    e2.coll.count = 3;
    e2.coll.algo = "PAT";
    e2.coll.proto = "SIMPLE";
    e2.coll.channels = 2;
    CHECK(v2->start_event(c, &h, &e2) == ncclSuccess && h && v2->stop_event(h) == ncclSuccess);
    CHECK(v2->finalize(c) == ncclSuccess);
    expect("\"func\":\"ReduceScatter\",\"bytes\":24,\"dtype\":\"fp64\",\"reason\":\"-\",\"algo\":\"PAT\",\"proto\":"
           "\"Simple\","
           "\"channels\":2,\"calls\":1,",
           1);

    struct slr_profile_event_v3 e3 = {.type = SLR_PROFILE_P2P};
    const struct slr_profiler_v3 *v3 = table("ncclProfiler_v3");
    CHECK(v3->init(&c, &mask) == ncclSuccess && c && mask == (SLR_PROFILE_COLL | SLR_PROFILE_P2P));
    e3.p2p.func = "Send";
    e3.p2p.datatype = "ncclInt32";
    e3.p2p.count = 5;
    e3.p2p.peer = 1;
    CHECK(v3->start_event(c, &h, &e3) == ncclSuccess && h && v3->stop_event(h) == ncclSuccess);
    CHECK(v3->finalize(c) == ncclSuccess);
    expect("\"func\":\"Send\",\"bytes\":20,\"dtype\":\"int32\",", 1);
}

static void drive_v4(void)
{
    void *c = NULL, *h = NULL, *ch = NULL;
    int mask = -1;
    const struct slr_profiler_v4 *v4 = table("ncclProfiler_v4");
    CHECK(v4->init(&c, &mask, "named", 0x444, 1, 8, 5, logger) == ncclSuccess && c);
    CHECK(mask == (SLR_PROFILE_COLL | SLR_PROFILE_P2P | SLR_PROFILE_KERNEL_CH));
    struct slr_profile_event_v4 e = {.type = SLR_PROFILE_COLL, .rank = 5};
    e.coll.func = "AllGather";
    e.coll.datatype = "ncclInt8";
    e.coll.count = 100;
    e.coll.channels = 1;
    e.coll.algo = "RING";
    e.coll.proto = "LL";
    CHECK(v4->start_event(c, &h, &e) == ncclSuccess && h);
    CHECK(v4->stop_event(h) == ncclSuccess);
    struct slr_profile_event_v4 k = {.type = SLR_PROFILE_KERNEL_CH, .parent = h};
    k.kernel_ch.ptimer = 5000;
    CHECK(v4->start_event(c, &ch, &k) == ncclSuccess && ch);
    union slr_profile_state s = {.kernel_ch.ptimer = 5700};
    CHECK(v4->record_event_state(ch, SLR_PROFILE_STATE_KERNEL_CH_STOP, &s) == ncclSuccess);
    CHECK(v4->stop_event(ch) == ncclSuccess && v4->finalize(c) == ncclSuccess);
    expect("\"comm_hash\":\"444\",\"crank\":5,\"nranks\":8,\"func\":\"AllGather\",\"bytes\":800,\"dtype\":"
           "\"int8\","
           "\"reason\":\"-\","
           "\"algo\":\"Ring\",\"proto\":\"LL\",\"channels\":1,\"calls\":1,\"timed\":1,\"min_ns\":700,\"mean_ns\":700,"
           "\"max_ns\":700",
           1);
}

/* The copy engines' collectives; else as v5, which all other cases use. */
static void drive_v6(void)
{
    void *c = NULL, *h = NULL;
    int mask = -1;
    const struct slr_profiler_v6 *v6 = table("ncclProfiler_v6");
    CHECK(v6->init(&c, 0x666, &mask, NULL, 1, 4, 0, logger) == ncclSuccess && c);
    CHECK(mask == (SLR_PROFILE_COLL | SLR_PROFILE_P2P | SLR_PROFILE_KERNEL_CH | SLR_PROFILE_CE_COLL));
    struct slr_profile_event_v6 e = {.type = SLR_PROFILE_CE_COLL};
    e.ce_coll.func = "AllGather";
    e.ce_coll.datatype = "ncclFloat16";
    e.ce_coll.count = 64;
    e.ce_coll.sync_strategy = "UC";
    CHECK(v6->start_event(c, &h, &e) == ncclSuccess && h && v6->stop_event(h) == ncclSuccess);
    e.type = SLR_PROFILE_CE_BATCH;
    CHECK(v6->start_event(c, &h, &e) == ncclSuccess && !h);
    CHECK(v6->finalize(c) == ncclSuccess);
    expect("\"comm_hash\":\"666\",\"crank\":0,\"nranks\":4,\"func\":\"AllGather\",\"bytes\":512,\"dtype\":"
           "\"fp16\","
           "\"reason\":\"-\","
           "\"algo\":\"CE\",\"proto\":\"UC\",\"channels\":0,\"calls\":1,\"timed\":0,",
           1);
}

static void versions(void)
{
    drive_v1_to_v3();
    drive_v4();
    drive_v6();
    CHECK(logged > 0); /* to NCCL's log */
}

/* Off: nothing is asked for, and nothing is written. */
static void off(void)
{
    for (int v = 1; v <= 6; v++) {
        void *c = (void *)1;
        int mask = -1;
        char name[32];
        snprintf(name, sizeof name, "ncclProfiler_v%d", v);
        const void *t = table(name);
        if (v < 4)
            CHECK(((const struct slr_profiler_v1 *)t)->init(&c, &mask) == ncclSuccess);
        else if (v == 4)
            CHECK(((const struct slr_profiler_v4 *)t)->init(&c, &mask, NULL, 1, 1, 2, 0, logger) == ncclSuccess);
        else
            CHECK(((const struct slr_profiler_v5 *)t)->init(&c, 1, &mask, NULL, 1, 2, 0, NULL) == ncclSuccess);
        CHECK(mask == 0 && !c);
    }
    struct slr_profile_event_v5 e = {.type = SLR_PROFILE_COLL};
    void *h = (void *)1;
    /* NCCL does not, but nothing is lost if it does. */
    CHECK(v5->start_event(NULL, &h, &e) == ncclSuccess && !h && v5->finalize(NULL) == ncclSuccess);
    expect("nccl", 0);
}

/* ---- orders of events ---- */

static void orders(void)
{
    void *c = comm_open(0x50, 2, 1), *ch[4], *op;
    /* Stopped before, while and after its channels run; channels one after another, and the other way round. */
    for (int when = 0; when <= 4; when++) {
        op = op_start(c, "AllReduce", 4, 1 << 10);
        for (int i = 0; i < 4; i++) {
            if (when == i)
                v5->stop_event(op);
            ch[i] = channel_start(c, op, i, 1000 + 10 * (uint64_t)i);
            CHECK(ch[i]);
        }
        if (when == 4)
            v5->stop_event(op);
        for (int i = 3; i >= 0; i--)
            channel_stop(ch[i], 2000 + 10 * (uint64_t)i); /* first 1000, last 2030 */
    }
    /* Channels that end before the next one begins; the operation's own stop is the last. */
    op = op_start(c, "AllReduce", 4, 1 << 10);
    for (int i = 0; i < 4; i++)
        channel_stop(channel_start(c, op, i, 1000 + 300 * (uint64_t)i), 1130 + 300 * (uint64_t)i);
    v5->stop_event(op);
    v5->finalize(c);
    expect("\"func\":\"AllReduce\",\"bytes\":1024,\"dtype\":\"int8\",\"reason\":\"-\",\"algo\":\"Ring\",\"proto\":"
           "\"Simple\","
           "\"channels\":4,\"calls\":6,\"timed\":6,\"min_ns\":1030,\"mean_ns\":1030,\"max_ns\":1030",
           1);
}

/* What NCCL never should do, and what it does when things go wrong. */
static void oddities(void)
{
    void *c = comm_open(0x51, 2, 0), *h = (void *)1;
    struct slr_profile_event_v5 e = {.type = SLR_PROFILE_COLL};
    union slr_profile_state s = {.kernel_ch.ptimer = 1};
    /* No handle, no parent, no state; handles that never were. */
    CHECK(v5->stop_event(NULL) == ncclSuccess && v5->record_event_state(NULL, 22, &s) == ncclSuccess);
    CHECK(!channel_start(c, NULL, 0, 1));
    for (uintptr_t odd = 1; odd; odd <<= 1) {
        CHECK(v5->stop_event((void *)odd) == ncclSuccess && v5->record_event_state((void *)odd, 22, &s) == ncclSuccess);
        CHECK(!channel_start(c, (void *)odd, 0, 1));
    }
    CHECK(v5->stop_event((void *)UINTPTR_MAX) == ncclSuccess);
    /* Types that are not asked for, and one of the future. */
    for (int bit = 0; bit < 63; bit++) {
        e.type = 1ull << bit;
        if (e.type & (SLR_PROFILE_COLL | SLR_PROFILE_P2P | SLR_PROFILE_COLL_API | SLR_PROFILE_P2P_API))
            continue;
        CHECK(v5->start_event(c, &h, &e) == ncclSuccess && !h);
    }
    /* Names that are NULL, unknown and too long; no channels told, and none comes. */
    e = (struct slr_profile_event_v5){.type = SLR_PROFILE_COLL};
    e.coll.func = "AFunctionOfWhichNobodyHasHeardYet\"\n";
    e.coll.datatype = "ncclFloat3";
    e.coll.count = SIZE_MAX;
    CHECK(v5->start_event(c, &h, &e) == ncclSuccess && h);
    v5->stop_event(h);
    v5->stop_event(h); /* twice */
    /* Fewer channels than were told; one that is stopped twice, and one without state. */
    void *op = op_start(c, "Broadcast", 3, 10), *a = channel_start(c, op, 0, 10), *b = channel_start(c, op, 1, 20);
    v5->stop_event(op);
    channel_stop(a, 30);
    v5->stop_event(a);
    v5->stop_event(a);
    CHECK(v5->record_event_state(b, 22, NULL) == ncclSuccess && v5->record_event_state(b, 5, &s) == ncclSuccess);
    v5->stop_event(b);
    /* An end before the beginning: NCCL's time stamps were overwritten. */
    op = op_start(c, "Reduce", 1, 10);
    v5->stop_event(op);
    channel_stop(channel_start(c, op, 0, 500), 400);
    CHECK(!channel_start(c, op, 0, 1)); /* it is over */
    /* One that is open when the communicator ends, with an open channel. */
    void *late = op_start(c, "AllGather", 1, 10), *open = channel_start(c, late, 0, 7);
    v5->finalize(c);
    CHECK(!channel_start(c, late, 0, 8));
    channel_stop(open, 9);
    v5->stop_event(late);
    expect("\"func\":\"AFunctionOfWhichNobodyH\",", 1);
    expect("\"func\":\"Broadcast\",\"bytes\":10,\"dtype\":\"int8\",\"reason\":\"-\",\"algo\":\"Ring\",\"proto\":"
           "\"Simple\","
           "\"channels\":3,\"calls\":1,\"timed\":0,",
           1);
    expect("\"func\":\"Reduce\",", 1);
    expect("\"calls\":1,\"timed\":0,", 4);
    expect("\"func\":\"AllGather\",\"bytes\":20,", 1);
    expect("nccl_lost", 0);
}

/* Far more than the pool holds, never more than some at once. */
static void many(void)
{
    void *c = comm_open(0x52, 2, 0);
    for (int i = 0; i < 100000; i++)
        op_whole(c, "AllReduce", 1, 64);
    v5->finalize(c);
    expect("\"calls\":100000,\"timed\":100000,", 1);
    expect("nccl_lost", 0);
}

/* More at once than the pool holds: dropped, counted, and all is well again. */
static void full(void)
{
    static void *held[6000];
    void *c = comm_open(0x53, 2, 0);
    int kept = 0;
    for (int i = 0; i < 6000; i++)
        kept += (held[i] = op_start(c, "AllReduce", 1, 64)) != NULL;
    CHECK(kept == 4096);
    for (int i = 0; i < 6000; i++) {
        void *ch = channel_start(c, held[i], 0, 100);
        CHECK(!ch == !held[i]);
        v5->stop_event(held[i]);
        channel_stop(ch, 200);
    }
    /* Operations whose channels never come do not keep their places for ever: the 904 that are pushed out are told. */
    for (int i = 0; i < 5000; i++)
        v5->stop_event(op_start(c, "Broadcast", 1, 64));
    op_whole(c, "Reduce", 1, 64);
    v5->finalize(c);
    expect("\"func\":\"AllReduce\",.*\"calls\":4096,\"timed\":4096,", 1);
    expect("\"func\":\"Broadcast\",.*\"calls\":5000,\"timed\":0,", 1);
    expect("\"func\":\"Reduce\",.*\"calls\":1,\"timed\":1,", 1);
    expect("\"event\":\"nccl_lost\",.*\"lost\":1904,\"unsummed\":0,", 1);
}

/* A handle whose record is another operation's by now hits nothing of that one. */
static void stale(void)
{
    static void *held[4096];
    void *c = comm_open(0x57, 2, 0), *old = op_start(c, "Broadcast", 1, 64),
         *old_channel = channel_start(c, old, 0, 100);
    v5->stop_event(old);
    channel_stop(old_channel, 200);
    for (int i = 0; i < 4096; i++)
        CHECK((held[i] = op_start(c, "AllReduce", 1, 64)));
    v5->stop_event(old);
    CHECK(!channel_start(c, old, 0, 1));
    for (int i = 0; i < 4096; i++) {
        void *ch = channel_start(c, held[i], 0, 1000);
        CHECK(ch);
        channel_stop(old_channel, 9999);
        v5->stop_event(old_channel);
        channel_stop(ch, 1500);
    }
    expect("nccl_sum", 0);
    for (int i = 0; i < 4096; i++)
        v5->stop_event(held[i]);
    v5->finalize(c);
    expect("\"func\":\"Broadcast\",.*\"calls\":1,\"timed\":1,\"min_ns\":100,", 1);
    expect("\"func\":\"AllReduce\",.*\"calls\":4096,\"timed\":4096,\"min_ns\":500,\"mean_ns\":500,\"max_ns\":500", 1);
}

/* More different ones than a communicator has sums. */
static void sums(void)
{
    void *c = comm_open(0x54, 2, 0);
    for (size_t i = 1; i <= 300; i++)
        op_whole(c, "AllReduce", 1, i);
    v5->finalize(c);
    expect("\"event\":\"nccl_sum\"", 256);
    expect("\"lost\":0,\"unsummed\":44,", 1);
}

/* The process ends with an open communicator; a child of it says nothing. */
static void at_exit(void)
{
    void *c = comm_open(0x55, 2, 0);
    op_whole(c, "AllReduce", 1, 64);
    pid_t child = fork();
    if (child == 0)
        exit(0);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    expect("nccl_sum", 0); /* the rest is for the script: one line, after the end */
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"versions", versions}, {"off", off},         {"orders", orders}, {"oddities", oddities},
                 {"many", many},         {"full", full},       {"stale", stale},   {"sums", sums},
                 {"exit", at_exit},      {"threads", threads}, {"cost", cost}};
    if (argc < 3)
        return 2;
    load(argv[1]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[2])) {
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "no case %s\n", argv[2]);
    return 2;
}
