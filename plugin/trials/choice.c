/* SPDX-License-Identifier: Apache-2.0 */
/* From what the ranks have measured to what all go by. */
#include <stdio.h>
#include <string.h>
#include "base/counters.h"
#include "base/log.h"
#include "plugin/comm/comm.h"
#include "plugin/trials/trials_impl.h"
#include "plugin/trials/trials.h"

enum {
    STRANGERS = 3, /* watched calls that are consumed by what has not been tried: then ways are tried again; */
    COMMON = 4,    /* if they are at least one of so many: of a rare one trials would miss some ways */
    RARER = 16,    /* each time it takes twice as many, until then. A time has up to two stages */
    GROUPED = 8,   /* calls that were all in groups: nothing of theirs will be measured */
    NONE = -1,     /* a way: no call of the site has been measured */
};
#define DOUBT 0.01 /* by which what the program takes speaks against a choice */

/* ---- each rank's post ---- */

static void post(struct slr_trials *t, uint32_t site)
{
    struct slr_trial_post *own = &t->shared->post[t->agreed.rank];
    uint32_t n = 0;
    for (unsigned i = 0; i < t->rows && n < SLR_TRIAL_ROWS; i++) {
        struct slr_samples *from = &t->row[i];
        if (from->site == site)
            own->site[site].row[n++] =
                slr_samples_post(from, t->rounds, slr_trials_base(&t->site[site]), slr_stage_of(t->site[site].again));
    }
    if (slr_stage_of(t->site[site].again) == SLR_STAGE_DUEL && t->turns_posted != t->blocks.upto) {
        t->turns_posted = t->blocks.upto; /* once, as rank 0 reads it when the first site is posted */
        slr_blocks_read(&t->blocks, own->turn);
    }
    own->site[site].rows = n;
    slr_trials_event(t, &t->site[site], SLR_SITE_POST);
    atomic_store(&own->site[site].times, t->site[site].again + 1);
}

/* All that it will ever know of the stage that the site is in. */
static bool is_complete(const struct slr_trials *t, uint32_t site)
{
    const struct slr_trial_site *s = &t->site[site];
    return slr_trials_is_over(t, s) && !slr_trials_awaits(t, site) &&
           (slr_stage_of(s->again) == SLR_STAGE_WAYS || slr_blocks_over(&t->blocks, t->agreed.calls));
}

void slr_trials_post(struct slr_trials *t)
{
    for (unsigned i = 0; i < t->sites; i++)
        if (t->site[i].state == SLR_SITE_TRYING && is_complete(t, i))
            post(t, i);
}

/* ---- rank 0 ---- */

/* What rank 0 has to say of a site. */
enum due { DUE_NOTHING, DUE_CHANGE, DUE_DUEL, DUE_CHOICE, DUE_END };

/* What the ranks have measured of a site in the stage that it is in. */
struct measured {
    uint32_t site;
    enum slr_stage stage;
    const struct slr_trial_row *rows[SLR_MAX_RANKS];
    uint32_t count[SLR_MAX_RANKS];
};

static void read_posts(const struct slr_comm *c, uint32_t site, struct measured *m)
{
    const struct slr_trials *t = c->trials;
    m->site = site;
    m->stage = slr_stage_of(t->site[site].again);
    for (int r = 0; r < c->nranks; r++) {
        m->rows[r] = t->shared->post[r].site[site].row;
        m->count[r] = t->shared->post[r].site[site].rows;
    }
}

/* Of the GEMM, in all: 0 those that are as many as the size says. */
static uint32_t parts_of(const struct slr_comm *c, uint32_t site, int way)
{
    const uint32_t blocks = slr_way_blocks(way);
    if (!c->trials->site[site].kind->produced)
        return slr_way_parts(way, c->nranks);
    return way == SLR_WAY_WHOLE ? 1 : blocks == UINT32_MAX ? 0 : blocks * (uint32_t)c->nranks;
}

/* "1:0.2411,2:0.1744": ms by number of parts; of a duel only the one that was chosen. */
static const char *list_parts(const struct slr_comm *c, const struct slr_trial_row *slowest, enum slr_stage stage,
                              uint32_t chosen, char *buf, size_t size)
{
    size_t at = 0;
    if (!slowest->gemm || (stage == SLR_STAGE_DUEL && !chosen))
        return "none";
    if (stage == SLR_STAGE_DUEL)
        snprintf(buf, size, "%u:%.4f", chosen, (double)slowest->ms[SLR_WAY_RING]);
    else
        for (int w = SLR_WAY_WHOLE; w < SLR_WAYS && at < size - 24; w++)
            at += (size_t)snprintf(buf + at, size - at, "%s%u:%.4f", at ? "," : "", parts_of(c, slowest->site, w),
                                   (double)slowest->ms[w]);
    return buf;
}

static void log_row(const struct slr_comm *c, const struct slr_samples *row, enum slr_stage stage,
                    const struct slr_trial_row *slowest, const char *by, const struct slr_trial_choice *choice)
{
    const struct slr_consumer *g = &row->what;
    const uint32_t chosen = parts_of(c, row->site, slr_way_chosen(choice, row->gemm, row->site));
    char parts[160] = "", trans[SLR_CONSUMER_TEXT], type[SLR_CONSUMER_TEXT];
    slr_log(SLR_LOG_INFO, "tried",
            "op=%s comm=%s crank=%d shard=%zu context=%llx m=%lld n=%lld k=%lld batch=%lld trans=%s type=%s "
            "gathered=%s stage=%s "
            "calls=%u "
            "clock=%s ring_ms=%.4f nccl_ms=%.4f parts_ms=%s by=%s parts=%u",
            c->trials->site[row->site].kind->op, c->name, c->rank, c->trials->site[row->site].shard,
            (unsigned long long)c->trials->site[row->site].context, (long long)g->m, (long long)g->n, (long long)g->k,
            (long long)g->batch, slr_consumer_trans_text(g, trans), slr_consumer_type_text(g, type),
            slr_consumer_gathered_text(g), stage == SLR_STAGE_DUEL ? "duel" : "ways", slowest->calls,
            slowest->of_host ? "host" : "device", (double)slowest->ms[SLR_WAY_RING], (double)slowest->ms[SLR_WAY_NCCL],
            list_parts(c, slowest, stage, chosen, parts, sizeof parts), by, chosen);
}

/* While slr_agreed_ready(): nobody reads the shared choice. */
static bool propose(struct slr_trials *t, const struct slr_trial_choice *choice)
{
    t->shared->choice = *choice;
    return slr_agreed_propose(&t->agreed);
}

/* What the site's duels have shown, with the one that is over. */
static struct slr_block_pairs pairs_with(const struct slr_comm *c, const struct slr_trial_site *s)
{
    struct slr_block_pairs pairs = s->pairs;
    float ms[2][SLR_TRIAL_ROUNDS];
    slr_duel_turns(c, ms);
    slr_blocks_add(&pairs, ms, c->trials->rounds);
    return pairs;
}

/* What the program takes speaks for the other way, though that is not certain. */
static bool is_doubtful(const struct slr_block_pairs *pairs, int way)
{
    return pairs->n > 0 && (way == SLR_WAY_NCCL ? pairs->mean > DOUBT : pairs->mean < -DOUBT);
}

/* Whether `choice` says whose the site is now, or a duel has to, or it is left as it was. */
static enum slr_verdict decide(struct slr_comm *c, const struct measured *m, struct slr_trial_choice *choice)
{
    struct slr_trial_site *s = &c->trials->site[m->site];
    const int before = choice->site_way[m->site];
    if (m->stage == SLR_STAGE_DUEL) {
        const struct slr_block_pairs pairs = pairs_with(c, s);
        int felt = slr_blocks_judge(&pairs, s->pairs.n > 0);
        /* Not certain in several: the ring's, as far as that shows, or NCCL's, as a tie is. */
        felt = felt < 0 && s->pairs.n > 0 && pairs.mean <= 0 ? SLR_WAY_NCCL : felt;
        const int known = felt < 0 ? s->before_duel : felt;
        if (known != NONE)
            choice->site_way[m->site] = known;
        const bool own = felt < 0 && slr_trials_judge(m->rows, m->count, c->nranks, m->site, choice);
        if (!own && known == NONE)
            return SLR_VERDICT_NOTHING;
        s->program = felt >= 0                                               ? SLR_PROGRAM_DECIDES
                     : own && is_doubtful(&pairs, choice->site_way[m->site]) ? SLR_PROGRAM_DOUBTS
                                                                             : SLR_PROGRAM_NOTHING;
        return SLR_VERDICT_CHOSEN;
    }
    const enum slr_verdict v =
        slr_trials_choose(m->rows, m->count, c->nranks, m->site, slr_trials_base(s), !s->kind->produced, choice);
    if (v == SLR_VERDICT_CHOSEN)
        s->program = SLR_PROGRAM_NOTHING;
    if (v != SLR_VERDICT_DUEL)
        return v;
    s->before_duel = choice->site_way[m->site];
    choice->site_way[m->site] = before; /* of the trials before, by which calls go until the duel is over */
    return v;
}

/* In a duel the ring's time is that of the way that was chosen. Where the program's times have decided, they are what
 * counts (duel.c). */
static void count(const struct slr_samples *row, const struct slr_trial_row *slowest,
                  const struct slr_trial_choice *choice, enum slr_stage stage)
{
    const int over_ring = stage == SLR_STAGE_DUEL ? SLR_WAY_RING : slr_way_chosen(choice, row->gemm, row->site);
    const int way = choice->site_way[row->site] == SLR_WAY_NCCL ? SLR_WAY_NCCL : over_ring;
    atomic_fetch_add(&slr_counters.chosen, 1);
    atomic_fetch_add(&slr_counters.chosen_ns, (uint64_t)((double)slowest->ms[way] * 1e6));
    atomic_fetch_add(&slr_counters.chosen_nccl_ns, (uint64_t)((double)slowest->ms[SLR_WAY_NCCL] * 1e6));
}

/* Each row that has counted, also with what an earlier stage had found. */
static void tell(const struct slr_comm *c, const struct measured *m, bool decided,
                 const struct slr_trial_choice *choice)
{
    const struct slr_trials *t = c->trials;
    const char *by = !decided ? "duel" : choice->site_way[m->site] == SLR_WAY_NCCL ? "nccl" : "ring";
    const bool untried =
        m->stage == SLR_STAGE_DUEL && t->site[m->site].before_duel == NONE && !t->coming.chosen[m->site];
    unsigned told = 0;
    struct slr_trial_row slowest;
    for (unsigned i = 0; i < t->rows; i++) {
        const struct slr_samples *row = &t->row[i];
        if (row->site != m->site ||
            !slr_trials_slowest(m->rows, m->count, c->nranks, row->gemm, m->site, m->stage, &slowest))
            continue;
        log_row(c, row, m->stage, &slowest, by, choice);
        if (decided && t->site[m->site].program != SLR_PROGRAM_DECIDES)
            count(row, &slowest, choice, m->stage);
        if (decided && (untried || slr_samples_tried(row, t->rounds)))
            slr_known_keep(c, row, choice);
        told++;
    }
    if (decided && untried && !told)
        slr_known_keep_site(c, m->site, choice);
}

/* What all have measured of a site: what is to be chosen. `duel`: one may begin. */
static enum due choose(struct slr_comm *c, uint32_t site, bool duel, struct slr_trial_choice *choice)
{
    struct slr_trial_site *s = &c->trials->site[site];
    const struct slr_trial_choice before = *choice;
    struct measured m;
    read_posts(c, site, &m);
    const enum slr_verdict v = decide(c, &m, choice);
    slr_trials_event(c->trials, s, v == SLR_VERDICT_DUEL ? SLR_SITE_DUE : SLR_SITE_NOT_DUE);
    if (v == SLR_VERDICT_DUEL && !duel) {
        *choice = before;
        return DUE_NOTHING;
    }
    uint32_t *next = v == SLR_VERDICT_DUEL ? choice->again : v == SLR_VERDICT_CHOSEN ? choice->chosen : choice->ended;
    next[site] = c->trials->site[site].again + 1;
    return v == SLR_VERDICT_DUEL ? DUE_DUEL : v == SLR_VERDICT_CHOSEN ? DUE_CHOICE : DUE_END;
}

/* It has been proposed. */
static void chose(struct slr_comm *c, uint32_t site, enum due due, const struct slr_trial_choice *choice)
{
    struct slr_trial_site *s = &c->trials->site[site];
    struct measured m;
    read_posts(c, site, &m);
    if (due == DUE_DUEL && s->before_duel == NONE)
        return; /* nothing has been measured since what was told before */
    /* The next duel of a doubtful one may be of fewer sites: it is a measurement of its own. */
    if (m.stage == SLR_STAGE_DUEL)
        s->pairs = s->program == SLR_PROGRAM_DOUBTS ? (struct slr_block_pairs){0} : pairs_with(c, s);
    if (due != DUE_DUEL)
        slr_trials_event(c->trials, s, SLR_SITE_CHOOSE);
    if (due != DUE_END)
        tell(c, &m, due == DUE_CHOICE, choice);
}

/* What consumes the site's gathers is not what was tried. */
static bool has_changed(const struct slr_trials *t, const struct slr_trial_site *s)
{
    const uint32_t times = s->again / 2 < RARER ? s->again / 2 : RARER;
    return slr_trials_is_decided(s) && s->strangers >= (uint32_t)STRANGERS << times &&
           s->strangers * COMMON >= s->watched && t->coming.again[s - t->site] == s->again;
}

/* In its first calls, and its GEMMs have a longer period than the others know of. */
static bool has_period(const struct slr_trials *t, uint32_t site)
{
    const struct slr_trial_site *s = &t->site[site];
    return s->again == 0 && s->calls < t->after && t->coming.period[site] < slr_trial_gemms_period(&s->behind);
}

/* As many calls as will be watched of a sparse site have been, or are enough. Its first stage need not wait. */
static bool is_watched(const struct slr_trials *t, uint32_t site)
{
    const struct slr_trial_site *s = &t->site[site];
    return s->again == 0 && t->coming.again[site] == 0 && s->calls < t->after && slr_trials_is_sparse(s) &&
           (slr_trial_gemms_period(&s->behind) || s->behind.calls >= SLR_TRIAL_WATCHED_CALLS);
}

/* No way would be measured: all calls are in groups, and none had a GEMM behind it whose time is known. */
static bool has_only_groups(const struct slr_trials *t, const struct slr_trial_site *s)
{
    return slr_stage_of(s->again) == SLR_STAGE_WAYS && s->state == SLR_SITE_TRYING && s->seen >= GROUPED &&
           s->alone == 0 && s->told == 0 && t->coming.ended[s - t->site] <= s->again;
}

/* In its first calls, with which no GEMM comes: there is nothing to try but ring and NCCL, which a duel does. */
static bool is_bare(const struct slr_trials *t, uint32_t site)
{
    const struct slr_trial_site *s = &t->site[site];
    return s->again == 0 && t->coming.again[site] == 0 && t->coming.ended[site] == 0 && s->calls < t->after &&
           !s->small && t->rounds > 1 && slr_trial_gemms_none(&s->behind);
}

/* Nothing has been found of it, as its calls can not be measured, each for itself; but what the program takes can. Or
 * that has been, and leaves doubts. It is still called. */
static bool is_open(const struct slr_trials *t, uint32_t site)
{
    const struct slr_trial_site *s = &t->site[site];
    const bool over = t->coming.ended[site] == s->again + 1 || t->coming.chosen[site] == s->again + 1;
    return over && (s->program == SLR_PROGRAM_DOUBTS || !t->coming.chosen[site]) && !s->small && t->rounds > 1 &&
           slr_trials_is_called(t, s);
}

/* And it is time for a duel: when it is known what an iteration is, or would be, and memory is mapped; after one that
 * told nothing, ever more rarely. */
static bool is_due(const struct slr_trials *t, uint32_t site)
{
    const struct slr_trial_site *s = &t->site[site];
    const uint64_t calls = t->agreed.calls - s->born, enough = (uint64_t)SLR_TRIAL_ENOUGH * t->after;
    const uint64_t longest = enough > s->duel_calls ? enough : s->duel_calls;
    if (s->duel_end)
        return t->agreed.calls >= s->duel_end + (longest << ((s->program == SLR_PROGRAM_DOUBTS ? 0 : 2) +
                                                             (s->again / 2 < RARER ? s->again / 2 : RARER)));
    if (!slr_trials_is_grouped(s)) /* it has times of its own as well */
        return calls >= t->after;
    return slr_trial_calls_enough(&t->calls, calls, enough);
}

static enum due begin_duel(struct slr_trials *t, uint32_t site, struct slr_trial_choice *choice)
{
    t->site[site].before_duel = NONE;
    choice->again[site] = slr_stage_next_duel(t->site[site].again);
    return DUE_DUEL;
}

/* The calls of a size are other sites from now on. All of them are tried anew, but those that a rule is known for. */
static bool takes_form(struct slr_trials *t, uint32_t site, struct slr_trial_choice *choice)
{
    struct slr_trial_site *first = &t->site[site];
    if (first->like >= 0 || !slr_form_look(t, first, choice))
        return false;
    for (uint32_t i = 0; i < t->sites; i++)
        if (slr_trials_first(t, (int)i) == first && !t->site[i].known) {
            choice->again[i] = slr_stage_next_trials(choice->again[i]);
            choice->period[i] = 1;
        }
    return true;
}

/* Puts what is due of a site into *choice. */
static enum due look(struct slr_comm *c, uint32_t site, bool duel, struct slr_trial_choice *choice)
{
    struct slr_trials *t = c->trials;
    struct slr_trial_site *s = &t->site[site];
    if (s->state == SLR_SITE_AGAIN && (!is_open(t, site) || has_changed(t, s)))
        slr_trials_event(t, s, SLR_SITE_NOT_DUE); /* it is not called any more, or its ways are tried again */
    if (takes_form(t, site, choice))
        return DUE_CHANGE;
    if (choice->again[site] > t->coming.again[site]) /* with its first one */
        return DUE_NOTHING;
    if (has_only_groups(t, s) || is_bare(t, site))
        choice->ended[site] = s->again + 1;
    else if (is_watched(t, site)) {
        choice->period[site] = slr_trial_gemms_period(&s->behind);
        choice->again[site] = slr_stage_next_trials(0);
    } else if (has_period(t, site))
        choice->period[site] = slr_trial_gemms_period(&s->behind);
    else if (has_changed(t, s))
        choice->again[site] = slr_stage_next_trials(choice->again[site]);
    else if (s->state != SLR_SITE_TRYING && is_open(t, site) && (slr_trials_is_held(s) || is_due(t, site))) {
        slr_trials_event(t, s, SLR_SITE_DUE);
        return duel ? begin_duel(t, site, choice) : DUE_NOTHING;
    } else if (slr_trials_is_held(s) && !duel)
        return DUE_NOTHING;
    else if (!slr_trials_is_decided(s) && slr_trials_posted_by_all(t, site))
        return choose(c, site, duel, choice);
    else
        return DUE_NOTHING;
    return DUE_CHANGE;
}

/* All sites at a time. The choice before has to be known to all, and to hold. */
void slr_trials_lead(struct slr_comm *c)
{
    struct slr_trials *t = c->trials;
    uint8_t due[SLR_TRIAL_SITES];
    bool any = false, begins = false;
    if (!slr_agreed_ready(&t->agreed) || (t->agreed.changes && t->agreed.calls <= t->agreed.place))
        return;
    struct slr_trial_choice choice = t->coming;
    const bool duel = slr_duel_may_begin(t);
    for (uint32_t i = 0; i < t->sites; i++) {
        due[i] = (uint8_t)look(c, i, duel, &choice);
        any |= due[i] != DUE_NOTHING;
        begins |= due[i] == DUE_DUEL;
    }
    choice.duel_run = 0; /* of the longest, so that each of its sites is measured */
    for (uint32_t i = 0; i < t->sites && begins; i++) {
        if (due[i] == DUE_NOTHING && is_open(t, i) &&
            t->site[i].program != SLR_PROGRAM_DOUBTS) /* no second one for them */
            due[i] = (uint8_t)begin_duel(t, i, &choice);
        if (due[i] == DUE_DUEL)
            choice.duel_run = slr_duel_length(t, i, choice.duel_run);
    }
    if (!any || !propose(t, &choice))
        return;        /* at a later call */
    unsigned over = 0; /* a duel, for so many sites */
    const struct slr_trial_site *decided = NULL;
    int felt = NONE;
    for (uint32_t i = 0; i < t->sites; i++)
        if (due[i] >= DUE_CHOICE && slr_stage_of(t->site[i].again) == SLR_STAGE_DUEL) {
            const bool by_program = due[i] == DUE_CHOICE && t->site[i].program == SLR_PROGRAM_DECIDES;
            felt = by_program ? choice.site_way[i] : felt;
            decided = !over++ || by_program ? &t->site[i] : decided;
        }
    if (over) {
        const struct slr_block_pairs pairs = pairs_with(c, decided);
        slr_duel_tell(c, over, &pairs, felt);
    }
    for (uint32_t i = 0; i < t->sites; i++)
        if (due[i] > DUE_CHANGE)
            chose(c, i, due[i], &choice);
}

void slr_trials_tell(const struct slr_comm *c)
{
    const struct slr_trials *t = c->trials;
    for (unsigned i = 0; t && c->rank == 0 && i < t->sites; i++) {
        const struct slr_trial_site *s = &t->site[i];
        const uint32_t by = slr_trials_goes_by(t, &t->in_force, i);
        const bool chosen = t->in_force.chosen[by] > 0;
        const int way = chosen ? t->in_force.site_way[by] : s->known ? s->known->way : slr_trials_base(s);
        const char *measured = t->site[by].program == SLR_PROGRAM_DECIDES ? "program" : "measured";
        const char *reason = chosen ? measured : s->known ? "known" : "unmeasured";
        slr_log(
            SLR_LOG_INFO, "site_way",
            "op=%s comm=%s crank=%d shard=%zu context=%llx calls=%llu by=%s reason=%s over_ring=%llu over_nccl=%llu",
            s->kind->op, c->name, c->rank, s->shard, (unsigned long long)s->context, (unsigned long long)s->seen,
            way == SLR_WAY_NCCL ? "nccl" : "ring", reason, (unsigned long long)s->went[1],
            (unsigned long long)s->went[0]);
    }
}

/* ---- all ---- */

/* The next stage of the site. */
static void begin(struct slr_trials *t, uint32_t site)
{
    struct slr_trial_site *s = &t->site[site];
    slr_trials_event(t, s, SLR_SITE_BEGIN);
    s->again = t->in_force.again[site];
    s->calls = t->after;
    s->from = t->agreed.place;
    s->run = t->in_force.duel_run;
    s->sparse = slr_trials_is_sparse(s);
    s->period = t->in_force.period[site];
    if (slr_stage_of(s->again) == SLR_STAGE_WAYS) {
        s->pairs = (struct slr_block_pairs){0};
        if (s->program == SLR_PROGRAM_DOUBTS)
            s->program = SLR_PROGRAM_NOTHING;
        s->strangers = s->watched = 0;
    }
    for (unsigned row = 0; row < t->rows; row++)
        if (t->row[row].site == site)
            slr_samples_forget(&t->row[row]);
}

/* The first site of a size with another form is in none of the contexts yet that there are now. */
static void forget_contexts(struct slr_trials *t)
{
    for (unsigned i = 0; i < t->sites; i++) {
        struct slr_trial_site *s = &t->site[i];
        const struct slr_trial_form *is = slr_form_of(&t->in_force, s->shard, s->kind),
                                    *comes = slr_form_of(&t->coming, s->shard, s->kind);
        if (s->like < 0 && comes && (!is || is->from != comes->from))
            s->context = 0;
    }
}

void slr_trials_go_by(struct slr_trials *t)
{
    struct slr_trial_site *s = t->site;
    for (unsigned i = 0; i < t->sites; i++) {
        const uint32_t by = slr_trials_goes_by(t, &t->coming, i);
        if (t->in_force.chosen[by] != t->coming.chosen[by])
            s[i].went[0] = s[i].went[1] = 0;
    }
    forget_contexts(t);
    t->in_force = t->coming;
    for (unsigned i = 0; i < t->sites; i++) {
        if (t->site[i].again != t->in_force.again[i]) {
            begin(t, i);
            if (slr_stage_of(t->site[i].again) == SLR_STAGE_DUEL) {
                const struct slr_turns turns = slr_trials_turns(t, &t->site[i]);
                slr_blocks_open(&t->blocks, &turns);
                t->site[i].duel_end = t->blocks.upto;
                t->site[i].duel_calls = t->blocks.upto - t->site[i].from;
            }
        }
        if (t->in_force.ended[i] > t->site[i].again && !slr_trials_is_over(t, &t->site[i])) {
            slr_trials_event(t, &t->site[i], SLR_SITE_END);
            t->site[i].calls = slr_trials_stage_end(t, &t->site[i]); /* as if all had been measured */
        }
    }
}
