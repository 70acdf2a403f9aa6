/* SPDX-License-Identifier: Apache-2.0 */
/* What the control blocks say. */
#include <string.h>
#include "base/wait.h"
#include "plugin/connect/connect.h"
#include "tools/top/top.h"

#define LOOK_MS 10

const struct top_process *top_process_of(const struct top *t, const struct top_block *b, int rank)
{
    for (size_t i = 0; i < b->holders.n; i++) {
        const struct top_process *p = &t->processes.at[b->holders.at[i]];
        if (p->inner == b->control->post[rank].pid)
            return p;
    }
    return NULL;
}

const char *top_rank_state(const struct top *t, const struct top_block *b, int rank)
{
    struct slr_post *post = &b->control->post[rank];
    const struct top_process *p = top_process_of(t, b, rank);
    if (atomic_load(&post->failed))
        return "failed";
    if (atomic_load(&post->state) == SLR_RANK_LEFT)
        return "left";
    if (!p)
        return "ended";
    return p->state == 'T' || p->state == 't' ? "stopped" : "runs";
}

bool top_rank_runs(const struct top *t, const struct top_block *b, int rank)
{
    return strcmp(top_rank_state(t, b, rank), "runs") == 0;
}

/* The word of its slots that are furthest. */
static uint64_t furthest(const struct slr_control *control)
{
    static const int rank[] = {[SLR_LINK_DISCONNECTED] = 0,
                               [SLR_LINK_REFUSED] = 1,
                               [SLR_LINK_RELEASING] = 2,
                               [SLR_LINK_CONNECTED] = 3,
                               [SLR_LINK_CONNECTING] = 4};
    uint64_t most = atomic_load(&control->link[0]);
    for (unsigned k = 1; k < SLR_SLOT_CLASSES; k++) {
        const uint64_t word = atomic_load(&control->link[k]);
        if (slr_link_state(word) <= SLR_LINK_REFUSED && rank[slr_link_state(word)] > rank[slr_link_state(most)])
            most = word;
    }
    return most;
}

const char *top_block_state(const struct top_block *b)
{
    static const char *const words[] = {
        [SLR_LINK_DISCONNECTED] = "not connected yet",
        [SLR_LINK_CONNECTING] = "connecting",
        [SLR_LINK_CONNECTED] = "connected",
        [SLR_LINK_RELEASING] = "giving memory back",
    };
    const uint64_t link = furthest(b->control);
    int left = 0;
    for (int r = 0; r < b->control->nranks; r++)
        left += atomic_load(&b->control->post[r].state) == SLR_RANK_LEFT;
    if (left == b->control->nranks)
        return "ended";
    const enum slr_link_state state = slr_link_state(link);
    if (state == SLR_LINK_REFUSED)
        return slr_reason_name(slr_refusal_reason(slr_link_refusal(link)));
    return state < SLR_LINK_REFUSED ? words[state] : "?";
}

/* How far the rank's device has come, in pieces: it says so to one rank or another in each call. */
static uint32_t came_to(const struct top_block *b, int rank)
{
    const int n = b->control->nranks;
    void *flags = (char *)b->control + slr_control_flags_at(n);
    uint32_t most = slr_flag_piece(flags, n, SLR_FLAG_READY, rank, rank ? 0 : 1);
    for (int r = 0; r < n; r++)
        if (r != rank) {
            const uint32_t ready = slr_flag_piece(flags, n, SLR_FLAG_READY, rank, r),
                           open = slr_flag_piece(flags, n, SLR_FLAG_OPEN, r, rank);
            most = slr_flag_reached(ready, most) ? ready : most;
            most = slr_flag_reached(open, most) ? open : most;
        }
    return most;
}

static void look_at(struct top_block *b)
{
    uint32_t at[SLR_MAX_RANKS], most;
    const int n = b->control->nranks;
    for (int r = 0; r < n; r++)
        at[r] = came_to(b, r);
    most = at[0];
    for (int r = 1; r < n; r++)
        most = slr_flag_reached(at[r], most) ? at[r] : most;
    for (int r = 0; r < n; r++)
        b->late[r] += at[r] != most;
}

static void note_ranks(struct top *t, const struct top_block *b)
{
    for (int r = 0; r < b->control->nranks; r++) {
        struct top_process *p = (struct top_process *)top_process_of(t, b, r);
        if (p && b->control->nranks > p->nranks) {
            p->rank = r;
            p->nranks = b->control->nranks;
            p->shown = top_shown(b, r);
        }
    }
}

void top_look(struct top *t, unsigned ms)
{
    for (unsigned passed = 0; passed < ms; passed += LOOK_MS) {
        for (size_t i = 0; i < t->blocks.n; i++)
            if (t->blocks.at[i].control)
                look_at(&t->blocks.at[i]);
        t->looks++;
        slr_sleep_ms(LOOK_MS);
    }
    t->now_ms = slr_now_ms();
    for (size_t i = 0; i < t->blocks.n; i++)
        if (t->blocks.at[i].control)
            note_ranks(t, &t->blocks.at[i]);
}

double top_late(const struct top *t, const struct top_block *b, int rank)
{
    return t->looks ? (double)b->late[rank] / t->looks : 0;
}

/* Rank 0 may be writing a choice: then a site may be counted as what it was. */
struct top_sites top_sites(const struct top_block *b)
{
    const int n = b->control->nranks;
    struct slr_trials_shared *trials =
        (struct slr_trials_shared *)(void *)((char *)b->control + slr_control_trials_at(n));
    struct top_sites sites = {0};
    for (int i = 0; i < SLR_TRIAL_SITES; i++) {
        bool tried = false;
        for (int r = 0; r < n; r++)
            tried |= atomic_load(&trials->post[r].site[i].times) != 0;
        if (!trials->choice.chosen[i])
            sites.none += tried;
        else if (trials->choice.site_way[i] == SLR_WAY_NCCL)
            sites.nccl++;
        else
            sites.ring++;
    }
    return sites;
}

struct slr_shown top_shown(const struct top_block *b, int rank)
{
    struct slr_shown shown;
    uint64_t *word = (uint64_t *)&shown;
    for (unsigned i = 0; i < SLR_SHOWN; i++)
        word[i] = atomic_load_explicit(&b->control->post[rank].shown[i], memory_order_relaxed);
    return shown;
}

double top_idle_s(const struct top *t, const struct top_process *p)
{
    const uint64_t when = p->shown.called_ms;
    return !when ? -1 : t->now_ms > when ? (double)(t->now_ms - when) / 1e3 : 0;
}
