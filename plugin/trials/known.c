/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"
#include "base/settings.h"
#include "plugin/trials/trials_impl.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/log.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/tuner/tune_table.h"
#include "plugin/tuner/tuner.h"

static void gpu_of(const struct slr_comm *c, char word[SLR_TUNE_GPU])
{
    char name[SLR_TUNE_GPU] = "";
    if (slr_real.cuDeviceGetName(name, sizeof name - 1, c->shared.device) != CUDA_SUCCESS)
        name[0] = '\0';
    slr_tune_gpu_word(name[0] ? name : "unknown", word);
}

uint64_t slr_known_gpu(const struct slr_comm *c)
{
    char word[SLR_TUNE_GPU];
    uint64_t hash = 0;
    gpu_of(c, word);
    for (const char *at = word; *at; at++)
        hash = slr_mix(hash, (uint64_t)*at);
    return hash;
}

static bool gpus_differ(const struct slr_comm *c)
{
    const struct slr_post *post = c->shared.control->post;
    for (int r = 1; r < c->nranks; r++)
        if (post[r].gpu != post[0].gpu)
            return true;
    return false;
}

/* Whether the rank has something that no rank before it has: its process, or its GPU. */
static bool is_first(const struct slr_post *post, int rank, bool process)
{
    for (int r = 0; r < rank; r++)
        if (process ? post[r].pid == post[rank].pid
                    : memcmp(&post[r].device_uuid, &post[rank].device_uuid, sizeof(CUuuid)) == 0)
            return false;
    return true;
}

/* What times depend on besides sizes, ranks and the GPU's model: settings that say what a way does, how
 * many processes and GPUs the ranks are, and NCCL's version. */
static uint64_t setup_of(const struct slr_comm *c)
{
    static const enum slr_setting_id settings[] = {SLR_S_PROTOCOL, SLR_S_CHUNKS, SLR_S_FLOP_PER_BYTE, SLR_S_PARTS,
                                                   SLR_S_SPLIT_K,  SLR_S_FUSE,   SLR_S_STRICT};
    const struct slr_post *post = c->shared.control->post;
    uint64_t digest = 0, processes = 0, gpus = 0;
    int nccl = 0;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        digest = slr_mix(digest, slr_get(settings[i]));
    for (int r = 0; r < c->nranks; r++) {
        processes += is_first(post, r, true);
        gpus += is_first(post, r, false);
    }
    slr_real.ncclGetVersion(&nccl);
    digest = slr_mix(slr_mix(digest, processes << 32 | gpus), (uint64_t)nccl) & UINT32_MAX;
    return digest ? digest : 1; /* 0 is any */
}

/* All conditions of a rule for this communicator. */
static struct slr_tune_site key_of(const struct slr_comm *c)
{
    struct slr_tune_site key = {.ways = SLR_WAYS_VERSION, .setup = setup_of(c)};
    key.ranks.low = key.ranks.high = (uint64_t)c->nranks;
    gpu_of(c, key.gpu);
    return key;
}

/* ---- what is known ---- */

/* Why rules are not used: how many for each reason. */
struct tally {
    unsigned used, ranks, gpu, ways, setup, unusable;
};

static unsigned *fits(const struct slr_tune_site *rule, const struct slr_tune_site *key, struct tally *tally)
{
    if (key->ranks.low < rule->ranks.low || key->ranks.low > rule->ranks.high)
        return &tally->ranks;
    if (rule->gpu[0] && strcasecmp(rule->gpu, key->gpu) != 0)
        return &tally->gpu;
    if (rule->ways && rule->ways != key->ways)
        return &tally->ways;
    return rule->setup && rule->setup != key->setup ? &tally->setup : &tally->used;
}

static int way_of(const struct slr_comm *c, const struct slr_tune_site *rule)
{
    if (rule->nccl)
        return SLR_WAY_NCCL;
    return rule->cut[0] ? slr_way_of_word(rule->cut, &slr_collectives[rule->kind], c->nranks) : SLR_WAY_RING;
}

static void unusable(const struct slr_comm *c, const struct slr_tune_site *rule)
{
    if (slr_log_first(slr_mix(slr_mix(0x73697465, (uint64_t)rule->line), (uint64_t)c->nranks)))
        slr_log(SLR_LOG_WARN, "tune_rule_unusable", "file=%s line=%d nranks=%d cut=%s msg=%s", slr_tune_path(),
                rule->line, c->nranks, rule->cut,
                "no way of that name is tried with so many ranks: the rule is not used");
}

static void publish_rules(struct slr_comm *c, const struct slr_tune_table *table, struct tally *tally)
{
    struct slr_trials_shared *shared = c->trials->shared;
    const struct slr_tune_site key = key_of(c);
    for (size_t i = 0; i < table->sites; i++) {
        const struct slr_tune_site *rule = &table->site[i];
        unsigned *why = fits(rule, &key, tally);
        const int way = way_of(c, rule);
        if (why == &tally->used && way < 0) {
            why = &tally->unusable;
            unusable(c, rule);
        }
        if (why != &tally->used || shared->knowns < SLR_TRIAL_KNOWNS)
            ++*why;
        if (why == &tally->used && shared->knowns < SLR_TRIAL_KNOWNS)
            shared->known[shared->knowns++] = (struct slr_trial_known){.low = rule->bytes.low,
                                                                       .high = rule->bytes.high,
                                                                       .consumer = rule->consumer,
                                                                       .context = rule->context,
                                                                       .kind = (int32_t)rule->kind,
                                                                       .line = rule->line,
                                                                       .way = way};
    }
}

void slr_known_publish(struct slr_comm *c)
{
    struct slr_tune_table table;
    struct tally tally = {0};
    c->trials->keeps = !gpus_differ(c);
    if (!slr_tune_read(&table))
        return;
    if (c->trials->keeps)
        publish_rules(c, &table, &tally);
    if (table.sites)
        slr_log(SLR_LOG_INFO, "tune_sites",
                "comm=%s crank=%d file=%s rules=%zu used=%u other_ranks=%u other_gpu=%u other_ways=%u other_setup=%u "
                "unusable=%u msg=%s",
                c->name, c->rank, slr_tune_path(), table.sites, tally.used, tally.ranks, tally.gpu, tally.ways,
                tally.setup, tally.unusable,
                c->trials->keeps ? "rules for call sites that fit this communicator are used from the first call on"
                                 : "the ranks' GPUs are not all of one model: no rule for call sites is used");
    slr_tune_free(&table);
}

static bool is_for(const struct slr_trial_known *known, size_t bytes, const struct slr_collective *kind)
{
    return known->kind == (int32_t)kind->id && bytes >= known->low && bytes <= known->high;
}

const struct slr_trial_known *slr_known_site(const struct slr_trials *t, size_t bytes,
                                             const struct slr_collective *kind, uint64_t context)
{
    for (uint32_t i = 0; i < t->shared->knowns; i++)
        if (is_for(&t->shared->known[i], bytes, kind) && t->shared->known[i].context == context)
            return &t->shared->known[i];
    return context ? slr_known_site(t, bytes, kind, 0) : NULL;
}

const struct slr_trial_known *slr_known_consumer(const struct slr_trials *t, uint32_t site,
                                                 const struct slr_consumer *consumer)
{
    const struct slr_trial_site *s = &t->site[site];
    const size_t bytes = s->shard * (size_t)t->agreed.nranks;
    for (uint32_t i = 0; s->known && !t->in_force.chosen[site] && i < t->shared->knowns; i++) {
        const struct slr_trial_known *known = &t->shared->known[i];
        if (is_for(known, bytes, s->kind) && known->context == s->known->context &&
            (known->way == SLR_WAY_NCCL) == (s->known->way == SLR_WAY_NCCL) &&
            slr_consumer_fits(&known->consumer, consumer))
            return known;
    }
    return NULL;
}

/* ---- what is kept ---- */

static struct slr_tune_site rule_for(const struct slr_comm *c, uint32_t site, const struct slr_trial_choice *choice)
{
    const struct slr_trial_site *s = &c->trials->site[site];
    struct slr_tune_site rule = key_of(c);
    rule.bytes.low = rule.bytes.high = s->shard * (size_t)c->nranks;
    rule.kind = s->kind->id;
    rule.context = s->like < 0 ? 0 : s->context;
    rule.consumer = SLR_CONSUMER_ANY;
    rule.nccl = choice->site_way[site] == SLR_WAY_NCCL;
    return rule;
}

void slr_known_keep(const struct slr_comm *c, const struct slr_samples *row, const struct slr_trial_choice *choice)
{
    struct slr_tune_site rule = rule_for(c, row->site, choice);
    rule.consumer = row->what;
    if (!rule.nccl && row->gemm)
        slr_way_word(slr_way_chosen(choice, row->gemm, row->site), &slr_collectives[rule.kind], c->nranks, rule.cut);
    if (c->trials->keeps)
        slr_tune_keep(&rule);
}

void slr_known_keep_site(const struct slr_comm *c, uint32_t site, const struct slr_trial_choice *choice)
{
    const struct slr_tune_site rule = rule_for(c, site, choice);
    if (c->trials->keeps)
        slr_tune_keep(&rule);
}
