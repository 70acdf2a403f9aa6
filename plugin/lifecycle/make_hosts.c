/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators that span hosts: what their ranks agree on when they are made, and their end. docs/hosts.md has the protocol.
 *
 * NCCL alone carries what hosts tell each other, over a communicator that only ranks with slipring join (the shadow), so that
 * the program's own is left as it is, whatever becomes of the agreement. The shadow's id travels with the program's: whoever
 * makes an id puts another one into the part of it that NCCL leaves empty.
 *
 *   1  shadow    all ranks join it, each at most SLIPRING_AGREE_TIMEOUT behind the program's communicator. Else: no agreement
 *   2  facts     every rank tells all of its host, settings and version; all come to the same layout, or none
 *   3  split     the inside of each host, which agrees and connects as any communicator does, and the rails, which connect
 *   4  vote      all ranks could: then, and only then, the communicator is moved host by host
 *
 * One that is split off from a communicator that goes over hosts has its shadow split off from that one's, which all
 * ranks of that do, in the order of the splits.
 *
 * A rank that has no shadow has told nobody anything, and nobody goes on without it. From the facts on a rank waits for the
 * others as long as NCCL does not fail, at most SLIPRING_AGREE_TIMEOUT; one that gives up then leaves the shadow, which ends
 * the wait of the others, as it has not voted. One that has voted, and does not learn the result, fails the communicator:
 * others may have learnt it. */
#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/wait.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/connect/connect.h"
#include "plugin/hosts/hosts.h"
#include "plugin/lifecycle/init.h"
#include "plugin/lifecycle/lifecycle_impl.h"
#include "plugin/trials/ways.h"

/* ---- the shadow's id ---- */

/* NCCL's own part of an id is its first 40 bytes (2.30); it hashes the rest, and uses nothing of it. */
enum { HALF = NCCL_UNIQUE_ID_BYTES / 2 };
static const char mark[8] = {'s', 'l', 'r', 'h', 'o', 's', 't', '1'};
enum { ROOM = HALF - sizeof mark };

static bool empty_from(const ncclUniqueId *id, size_t from)
{
    for (size_t i = from; i < sizeof id->internal; i++)
        if (id->internal[i])
            return false;
    return true;
}

/* One that nobody will use, as its communicator is of one host: NCCL waits behind each id for ranks. */
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static ncclUniqueId spare;
static bool has_spare;

static bool take_spare(ncclUniqueId *shadow)
{
    pthread_mutex_lock(&spare_lock);
    const bool had = has_spare;
    *shadow = spare;
    has_spare = false;
    pthread_mutex_unlock(&spare_lock);
    return had;
}

static void keep_spare(const ncclUniqueId *shadow)
{
    pthread_mutex_lock(&spare_lock);
    spare = *shadow;
    has_spare = true;
    pthread_mutex_unlock(&spare_lock);
}

void slr_hosts_mark(ncclUniqueId *id)
{
    ncclUniqueId shadow;
    if (!empty_from(id, HALF) || (!take_spare(&shadow) && slr_real.ncclGetUniqueId(&shadow) != ncclSuccess))
        return;
    if (!empty_from(&shadow, ROOM)) {
        slr_log(SLR_LOG_WARN, "hosts_off", "msg=%s", "this NCCL's ids have no room for what hosts agree with");
        return;
    }
    memcpy(id->internal + HALF, mark, sizeof mark);
    memcpy(id->internal + HALF + sizeof mark, shadow.internal, ROOM);
}

void slr_hosts_expect(struct slr_init *init, const ncclUniqueId *id)
{
    if (!init || !slr_get(SLR_S_HOSTS) || memcmp(id->internal + HALF, mark, sizeof mark) != 0)
        return;
    memcpy(init->shadow.internal, id->internal + HALF + sizeof mark, ROOM);
    init->marked = true;
}

/* ---- one rank's part ---- */

struct fact {
    uint64_t meaning; /* of the control block's words, as the version has them, and of settings that must be equal */
    uint64_t host;    /* whose socket it is that the ranks of one meet at: of the machine, and SLIPRING_HOST */
    int32_t willing;  /* as far as this rank knows now */
    int32_t inside;   /* it has the inside, and its rail */
    int32_t sums;     /* likewise: and can add */
    int32_t whole;    /* but no shard by pieces */
    uint32_t rounds;  /* that it would try; 0: none */
    int32_t strict;
    uint64_t slot; /* SLIPRING_SLOT_BYTES */
};

struct part {
    struct slr_init *init;
    CUcontext ctx;
    uint64_t deadline;
    struct fact *fact; /* of all ranks */
    bool voted, learnt;
    struct slr_hosts *hosts;
    pthread_t thread;
    bool threaded;
};

static void say(const struct part *p, enum slr_log_level level, const char *what)
{
    slr_log(level, "hosts_off", "comm=%s crank=%d msg=%s", p->init->comm->name, p->init->rank, what);
}

/* Without the fields of newer versions, which older ones would write behind theirs. */
static ncclConfig_t config_of(int blocking)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.size = offsetof(ncclConfig_t, trafficClass);
    config.version = NCCL_VERSION(2, 18, 0);
    config.blocking = blocking;
    return config;
}

static bool join_shadow(struct part *p)
{
    ncclConfig_t config = config_of(0);
    struct slr_shadow *s = &p->hosts->shadow;
    config.maxCTAs = 1;
    const ncclResult_t r =
        slr_real.ncclCommInitRankConfig(&s->comm, p->init->nranks, p->init->shadow, p->init->rank, &config);
    return s->comm && slr_shadow_await(s, s->comm, r, p->deadline) == ncclSuccess;
}

/* Known to all ranks of the host: the root has told them. */
static bool may_span(const struct slr_init *init)
{
    return init->comm && (init->marked || init->split.parent) && slr_refusal_reason(init->word) == SLR_R_RANK_ABSENT;
}

/* All ranks of the parent do, whether they get a communicator that may span hosts, another one, or none. */
static bool split_shadow(struct part *p)
{
    struct slr_init *init = p->init;
    struct slr_shadow *from = &init->split.parent->hosts->shadow;
    const int color = may_span(init) ? init->split.color : NCCL_SPLIT_NOCOLOR;
    ncclResult_t r = ncclInternalError;
    ncclConfig_t config = config_of(0);
    config.maxCTAs = 1;
    if (slr_shadow_begin(from, init->split.turn)) {
        p->deadline = slr_now_ms() + slr_get(SLR_S_AGREE_TIMEOUT);
        r = slr_real.ncclCommSplit(from->comm, color, init->split.key, &p->hosts->split, &config);
        r = slr_shadow_await(from, from->comm, r, p->deadline);
    }
    if (r != ncclSuccess) { /* whoever is not there yet finds it in use */
        slr_shadow_end(from);
        slr_hosts_owe(init->split.parent->hosts, p->hosts);
    } else {
        p->hosts->shadow.comm = p->hosts->split;
    }
    slr_hosts_split_over(&init->split);
    return r == ncclSuccess && p->hosts->shadow.comm;
}

/* False: this rank has nothing to agree on over hosts, or can not. */
static bool come_together(struct part *p)
{
    const bool spans = may_span(p->init), together = p->init->split.parent ? split_shadow(p) : join_shadow(p);
    if (!together && spans)
        say(p, SLR_LOG_WARN,
            "not all ranks have come to agree over hosts: SLIPRING_HOSTS and the library are for all hosts of a job");
    return together;
}

static bool takes_part(const struct slr_init *init)
{
    return init->split.parent || may_span(init);
}

/* All ranks' facts, as each has them now. False: this rank has not got them. */
static bool exchange(struct part *p, const struct fact *own)
{
    static_assert(sizeof *own <= SLR_SHADOW_BYTES, "a rank's facts");
    return slr_shadow_exchange(&p->hosts->shadow, own, p->fact, sizeof *own, p->deadline);
}

static uint64_t settings_digest(void)
{
    uint64_t h = SLR_CONTROL_MAGIC;
    for (int i = 0; i < SLR_S_COUNT; i++)
        if (slr_setting_rows[i].scope == SLR_SCOPE_UNIFORM)
            h = slr_mix(h, slr_settings()->num[i]);
    return h;
}

/* Where ranks meet over abstract sockets: one machine and network namespace, and SLIPRING_HOST. 0: not known. */
static uint64_t host_digest(void)
{
    struct slr_sha256 hash;
    uint8_t digest[SLR_SHA256_BYTES];
    struct stat net;
    char boot[64] = "";
    const char *name = slr_settings()->text[SLR_S_HOST];
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? -1 : read(fd, boot, sizeof boot);
    if (fd >= 0)
        close(fd);
    if (got <= 0 || stat("/proc/self/ns/net", &net) != 0)
        return 0;
    slr_sha256_begin(&hash);
    slr_sha256_add(&hash, boot, sizeof boot);
    slr_sha256_add(&hash, &net.st_ino, sizeof net.st_ino);
    slr_sha256_add(&hash, name, strlen(name));
    slr_sha256_end(&hash, digest);
    uint64_t host;
    memcpy(&host, digest, sizeof host);
    return host;
}

/* ---- the layout ---- */

/* From the facts, which all have alike, as below. NULL: all ranks can take part; else why not. */
static const char *who_can_not(const struct fact *fact, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        if (!fact[r].willing)
            return "a rank can not take part";
        if (fact[r].meaning != fact[0].meaning)
            return "hosts have other versions or settings";
    }
    return NULL;
}

/* Hosts of the same number of ranks, one behind the other. NULL: it is; else why not. */
static const char *layout(const struct fact *fact, int nranks, int rank, struct slr_hosts *h)
{
    int per = 0;
    while (per < nranks && fact[per].host == fact[0].host)
        per++;
    for (int r = 0; r < nranks; r++) {
        if (fact[r].host != fact[r / per * per].host || (r >= per && r % per == 0 && fact[r].host == fact[r - 1].host))
            return "the ranks of a host are not one behind the other, or hosts have different numbers of them";
    }
    if (nranks % per != 0)
        return "hosts have different numbers of ranks";
    if (per < 2)
        return "hosts have one rank each";
    if (nranks / per > SLR_HOSTS)
        return "there are more hosts than a gather has steps for";
    h->hosts = nranks / per;
    h->per = per;
    h->host = rank / per;
    h->place = rank % per;
    return NULL;
}

/* ---- inside and rail ---- */

static bool split(struct part *p, int color, int key, unsigned ctas, ncclComm_t *out)
{
    ncclConfig_t config = config_of(1);
    if (ctas)
        config.maxCTAs = (int)ctas;
    *out = NULL;
    const struct slr_shadow *s = &p->hosts->shadow;
    const ncclResult_t r = slr_real.ncclCommSplit(s->comm, color, key, out, &config);
    return slr_shadow_await(s, s->comm, r, p->deadline) == ncclSuccess && *out;
}

/* The inside agrees as any communicator, and is connected for its smallest slots, so that it is known that it can. */
static bool make_inside(struct part *p)
{
    struct slr_hosts *h = p->hosts;
    const int32_t host = h->host;
    const struct slr_key key = slr_key_derive("inside", &p->init->key, &host, sizeof host);
    struct slr_init *init = calloc(1, sizeof *init);
    if (init)
        slr_init_begin(init, &key, &h->inside);
    const bool made = split(p, h->host, p->init->rank, 0, &h->inside);
    if (made) {
        slr_inits_agree(init);
        slr_inits_enlist(init);
    }
    slr_inits_free(init);
    struct slr_comm *c = made ? slr_comm_find(h->inside) : NULL;
    if (!c)
        return false;
    bool ring = c->pass == SLR_R_RING;
    if (ring) {
        ring = slr_connect(c, slr_scatter_slots(c, 1)) == SLR_R_RING;
        slr_connect_end(&c, 1);
    }
    slr_hosts_hold(h);
    c->hosts = h;
    c->spans = h->hosts;
    c->host = h->host;
    h->sums = ring && slr_sums_all_can(c);
    h->whole = slr_shared_any_in_one_process(&c->shared);
    slr_comm_put(c);
    return ring;
}

static bool make_rail(struct part *p)
{
    struct slr_hosts *h = p->hosts;
    return split(p, h->place, p->init->rank, SLR_RAIL_BLOCKS, &h->rail) &&
           slr_rail_connect(h, h->shadow.memory) == ncclSuccess &&
           slr_shadow_await_stream(&h->shadow, h->stream, h->rail, p->deadline);
}

/* ---- the agreement ---- */

static bool prepare(struct part *p)
{
    p->fact = calloc((size_t)p->init->nranks, sizeof *p->fact);
    return p->fact && slr_hosts_duel_make(p->hosts) && slr_shadow_open(&p->hosts->shadow, p->init->nranks) == SLR_OK;
}

/* What can be known before the others are asked. */
static bool willing(struct part *p, const struct fact *own)
{
    return own->host != 0 && slr_rail_open(p->hosts) == SLR_OK;
}

/* Whether all could; a rank that has no answer may be alone with that. */
static bool vote(struct part *p, struct fact own)
{
    p->voted = own.inside;
    p->learnt = exchange(p, &own);
    for (int r = 0; p->learnt && r < p->init->nranks; r++) {
        p->hosts->sums &= p->fact[r].sums != 0;
        p->hosts->whole |= p->fact[r].whole != 0;
        p->hosts->strict |= p->fact[r].strict != 0;
        if (!p->fact[r].inside)
            return false;
    }
    return p->learnt;
}

/* The fewest rounds that a rank would try. */
static uint32_t rounds_of_all(const struct part *p)
{
    uint32_t rounds = p->fact[0].rounds;
    for (int r = 1; r < p->init->nranks; r++)
        rounds = p->fact[r].rounds < rounds ? p->fact[r].rounds : rounds;
    return rounds;
}

/* The least that a rank has set: what it has for sums is as large (hosts/sums.c). */
static size_t slot_of_all(const struct part *p)
{
    uint64_t slot = p->fact[0].slot;
    for (int r = 1; r < p->init->nranks; r++)
        slot = p->fact[r].slot < slot ? p->fact[r].slot : slot;
    return (size_t)slot;
}

static bool agree(struct part *p)
{
    const bool prepared = may_span(p->init) && prepare(p);
    if (!come_together(p) || !prepared)
        return false;
    p->deadline = slr_now_ms() + slr_get(SLR_S_AGREE_TIMEOUT);
    struct fact own = {.meaning = settings_digest(),
                       .host = host_digest(),
                       .strict = slr_get(SLR_S_STRICT) != 0,
                       .slot = slr_get(SLR_S_SLOT_BYTES)};
    own.willing = willing(p, &own);
    own.rounds = slr_trials_none() ? 0 : (uint32_t)slr_get(SLR_S_TRIALS);
    if (!exchange(p, &own))
        return say(p, SLR_LOG_WARN, "the ranks' facts could not be exchanged"), false;
    const char *why = who_can_not(p->fact, p->init->nranks);
    if (why)
        return say(p, SLR_LOG_WARN, why), false;
    why = layout(p->fact, p->init->nranks, p->init->rank, p->hosts);
    if (why) { /* nothing is wrong: such are NCCL's, as those of pipeline or replicating groups */
        p->init->word = slr_refusal(SLR_R_HOSTS_NCCL, 0xffff);
        return say(p, SLR_LOG_INFO, why), false;
    }
    slr_hosts_duel_open(p->hosts, rounds_of_all(p));
    const bool inside = make_inside(p), rail = make_rail(p);
    own.inside = inside && rail;
    own.sums = p->hosts->sums;
    own.whole = p->hosts->whole;
    slr_hosts_sums_fit(p->hosts, slot_of_all(p));
    /* Some rank may have waited that long for its rail. */
    p->deadline = slr_now_ms() + 2 * slr_get(SLR_S_AGREE_TIMEOUT);
    if (vote(p, own))
        return true;
    say(p, SLR_LOG_WARN,
        p->learnt ? "a host's ring, or a rail, could not be made" : "the result of the vote did not come");
    return false;
}

/* ---- a part ---- */

static void *run(void *arg)
{
    struct part *p = arg;
    slr_guard++;
    if (slr_context_enter(p->ctx) == SLR_OK) {
        p->hosts->ctx = p->ctx;
        if (agree(p)) {
            p->init->hosts = p->hosts;
        } else {
            slr_hosts_end(p->hosts, true);
            slr_hosts_put(p->hosts);
            p->init->lost = p->voted && !p->learnt;
        }
        slr_shared_leave();
    } else {
        slr_hosts_put(p->hosts);
    }
    free(p->fact);
    slr_guard--;
    return NULL;
}

/* Each rank of a thread on a thread of its own, as one waits for the other; the only one here. */
static void start(struct part *p, bool alone)
{
    p->deadline = slr_now_ms() + slr_get(SLR_S_AGREE_TIMEOUT);
    p->threaded = !alone && slr_thread_start(&p->thread, "slipring-hosts", run, p) == 0;
    if (!p->threaded)
        run(p);
}

/* False: there is nothing to be agreed on, or this rank can not, and the others will find it absent. */
static bool begin(struct part *p, struct slr_init *init)
{
    CUdevice device;
    p->init = init;
    p->hosts = slr_hosts_new();
    if (!p->hosts)
        return false;
    if (init->split.parent) {
        p->ctx = init->split.parent->hosts->ctx;
        return true;
    }
    /* Retained until the process ends, as NCCL has it. */
    if (slr_real.cuDeviceGet(&device, init->device) == CUDA_SUCCESS &&
        slr_real.cuDevicePrimaryCtxRetain(&p->ctx, device) == CUDA_SUCCESS)
        return true;
    slr_hosts_put(p->hosts);
    return false;
}

void slr_hosts_agree(struct slr_init *list)
{
    unsigned count = 0, i = 0;
    for (struct slr_init *init = list; init; init = init->next) {
        count += takes_part(init);
        if (init->comm && init->marked && init->rank == 0 && init->word == SLR_COMMIT)
            keep_spare(&init->shadow);
    }
    struct part *parts = count ? calloc(count, sizeof *parts) : NULL;
    for (struct slr_init *init = list; parts && init; init = init->next)
        if (takes_part(init) && begin(&parts[i], init))
            start(&parts[i++], count == 1);
    for (unsigned n = 0; n < i; n++)
        if (parts[n].threaded)
            pthread_join(parts[n].thread, NULL);
    free(parts);
}
