/* SPDX-License-Identifier: Apache-2.0 */
/* What to do about gathers that no GEMM consumes in parts: one line for each cause, with the call sites
 * that it is the cause of. */
#include <inttypes.h>
#include <string.h>
#include "tools/report/advice.h"

enum { NAMED = 3, CAUSES = 16 };

/* Call sites with one cause. */
struct cause {
    const char *by; /* the call; NULL: not told */
    bool host;
    bool alone; /* no GEMM of the communicator is known to read, or to come behind, a gather */
    size_t sites, named[NAMED];
    int64_t most; /* the longest of the sites' exposed medians */
    double cost;  /* ns that a rank stood still at those so ended, without waiting for late ranks */
};

static const char *seen_by(const struct report *r, const struct site *s, const char *reason)
{
    const struct comm *c = &r->m->comms.at[s->comm];
    for (size_t k = 0; k < c->members.n; k++) {
        const struct member *b = &r->m->members.at[c->members.at[k]];
        for (size_t i = 0; i < b->shapes.n; i++)
            if (b->shapes.at[i].event == E_JOINED && b->shapes.at[i].shard == s->shard &&
                strcmp(b->shapes.at[i].reason, reason) == 0)
                return b->shapes.at[i].by;
    }
    return NULL;
}

/* ns, of a rank in the mean. */
static double cost_of(const struct report *r, const struct site *s, const char *reason)
{
    double sum = 0;
    for (size_t k = 0; k < s->endings.n; k++) {
        const struct ending *e = &s->endings.at[k];
        for (size_t i = 0; i < e->exposed.n && e->reason && strcmp(e->reason, reason) == 0; i++)
            sum += (double)(e->exposed.at[i] - e->late.at[i]);
    }
    const uint64_t every = r->m->members.at[r->m->comms.at[s->comm].members.at[0]].every;
    return s->ranks.n ? sum / (double)s->ranks.n * (double)(every ? every : 1) : 0;
}

static bool no_gemm(const struct report *r, const struct comm *c)
{
    for (size_t k = 0; k < c->members.n; k++) {
        const struct member *b = &r->m->members.at[c->members.at[k]];
        for (size_t i = 0; i < b->shapes.n; i++)
            if (b->shapes.at[i].event == E_FUSED || b->shapes.at[i].m > 0)
                return false;
    }
    return true;
}

static void add(struct cause *list, size_t *n, const struct cause *found, size_t site)
{
    size_t i = 0;
    while (i < *n && (list[i].by != found->by || list[i].host != found->host || list[i].alone != found->alone))
        i++;
    if (i == CAUSES)
        return;
    if (i == *n)
        list[(*n)++] = (struct cause){.by = found->by, .host = found->host, .alone = found->alone};
    if (list[i].sites < NAMED)
        list[i].named[list[i].sites] = site;
    list[i].sites++;
    list[i].most = found->most > list[i].most ? found->most : list[i].most;
    list[i].cost += found->cost;
}

/* Many of the site's gathers are waited for by something that is no GEMM, and it costs something. */
static void look_at(const struct report *r, size_t site, struct cause *list, size_t *n)
{
    const struct site *s = &r->sites.list.at[site];
    uint64_t all = 0;
    for (size_t k = 0; k < s->ended.n; k++)
        all += s->ended.at[k].n;
    for (size_t k = 0; k < s->ended.n; k++) {
        const struct reason_count *e = &s->ended.at[k];
        const bool host = strcmp(e->reason, "host_observes") == 0;
        if ((host || strcmp(e->reason, "other_operation") == 0) && e->n * 4 >= all && s->exposed_median >= 20000)
            add(list, n,
                &(struct cause){.by = seen_by(r, s, e->reason),
                                .host = host,
                                .alone = host && no_gemm(r, &r->m->comms.at[s->comm]),
                                .most = s->exposed_median,
                                .cost = cost_of(r, s, e->reason)},
                site);
    }
}

static bool begins(const char *text, const char *with)
{
    return text && strncmp(text, with, strlen(with)) == 0;
}

/* What comes, and what is to be done; for a program that does it on purpose: nothing. */
static const char *text_of(const struct cause *w)
{
    if (w->alone)
        return "the host waits for the gather itself, and nothing else runs meanwhile; no GEMM reads what is gathered. "
               "Wait later, behind work that does not need it";
    if (w->host)
        return "the host waits between the gather and the GEMM. Let it wait behind the GEMM: not for the stream or the "
               "device, but for an event of what it needs (PyTorch: no .item(), .cpu() or torch.cuda.synchronize() "
               "there)";
    if (begins(w->by, "cuStreamWaitEvent"))
        return "another stream waits for the gather before something reads it there that is no GEMM. FSDP prefetches "
               "so, and copies the parameters out of the gathered buffer: nothing to do in the program. What is "
               "exposed gets less when it gathers earlier (FSDP2: set_modules_to_forward_prefetch, "
               "set_modules_to_backward_prefetch)";
    if (begins(w->by, "cuMemcpyHtoD"))
        return "data from the host come between the gather and the GEMM. Copy them before the gather, behind the GEMM, "
               "or "
               "on another stream. FSDP brings the list of what it copies out of the gathered buffer: nothing to do in "
               "the program";
    if (begins(w->by, "cuMemcpy"))
        return "a copy comes between the gather and the GEMM. If it copies the gathered buffer, let the GEMM read the "
               "gathered buffer itself (PyTorch: no contiguous(), cat, clone or to() behind the gather). If it has "
               "nothing to do with it, put it behind the GEMM or on another stream";
    if (begins(w->by, "cuLaunch"))
        return "a kernel comes between the gather and the GEMM. If it reads the gathered buffer (PyTorch: a cast, an "
               "activation, contiguous(), cat), apply it to the shard before the gather. If it has nothing to do with "
               "it, put it behind the GEMM or on another stream";
    return "it comes between the gather and the GEMM. If it has nothing to do with the gathered buffer, put it behind "
           "the GEMM or on another stream";
}

static void list_sites(char *buf, size_t size, const struct report *r, const struct cause *w)
{
    size_t len = 0;
    for (size_t i = 0; i < w->sites && i < NAMED; i++) {
        char label[80];
        len += (size_t)snprintf(buf + len, size - len, "%s%s", i ? ", " : "",
                                site_label(&r->sites, w->named[i], label, sizeof label));
    }
    if (w->sites > NAMED)
        snprintf(buf + len, size - len, ", ...");
}

void advise_joins(struct report *r, struct advices *a)
{
    struct cause list[CAUSES];
    size_t n = 0;
    for (size_t i = 0; i < r->sites.list.n; i++)
        look_at(r, i, list, &n);
    for (size_t i = 0; i < n; i++) {
        char sites[300], time[FORM_ROOM];
        list_sites(sites, sizeof sites, r, &list[i]);
        advice_add(a, list[i].host ? ADVICE_HOST : ADVICE_JOIN, list[i].cost,
                   "%s, at %zu call site%s (%s), up to %s each time: %s.",
                   list[i].by     ? list[i].by
                   : list[i].host ? "A wait of the host"
                                  : "An operation",
                   list[i].sites, list[i].sites > 1 ? "s" : "", sites, form_time(time, (double)list[i].most),
                   text_of(&list[i]));
    }
}

/* ---- GEMMs that read something else than what was gathered ---- */

/* Of GEMMs that read the gathered buffer in one way. */
struct reading {
    const struct shape *first;
    const struct comm *comm;
    size_t gemms;
};

static bool is_fused(const struct member *b, uint64_t shard)
{
    for (size_t i = 0; i < b->shapes.n; i++)
        if (b->shapes.at[i].event == E_FUSED && b->shapes.at[i].shard == shard)
            return true;
    return false;
}

/* A GEMM that reads nothing of a gather is of interest where no GEMM consumes those. Of rank 0 of each
 * communicator: the others make the same calls. */
static void find(const struct report *r, const char *reads, struct reading *x)
{
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        const struct member *b = &r->m->members.at[c->members.at[0]];
        for (size_t k = 0; k < b->shapes.n; k++) {
            const struct shape *h = &b->shapes.at[k];
            const bool other = h->event == E_JOINED && strcmp(h->reason, "gemm_other_operand") == 0;
            if ((!other && h->event != E_OVERTAKEN) || !h->reads || strcmp(h->reads, reads) != 0 ||
                (strcmp(reads, "elsewhere") == 0 && is_fused(b, h->shard)))
                continue;
            x->first = x->gemms++ ? x->first : h;
            x->comm = x->gemms > 1 ? x->comm : c;
        }
    }
}

static const struct {
    const char *reads, *what, *cure;
} readings[] = {
    {"part", "begins where the gathered buffer does and reads only",
     "one GEMM has to read all of it: gather only what this one reads, or multiply all at once"},
    {"inside", "reads, from within the gathered buffer on,",
     "a GEMM is cut where it reads the whole buffer from its beginning: gather this part by itself, or multiply all "
     "at once"},
    {"more", "begins where the gathered buffer does and reads",
     "the buffer is larger than what was gathered into it: gather all of it in one call, or multiply what was "
     "gathered"},
    {"elsewhere", "comes behind the gather and reads other memory:",
     "if it is to consume the gather, it reads a copy: let it read the gathered buffer itself (PyTorch: no "
     "contiguous(), cat, clone, to() or padding between all_gather_into_tensor and the product)"},
};

static void tell(struct advices *a, size_t i, const struct reading *x)
{
    const struct shape *h = x->first;
    char bytes[FORM_ROOM], all[FORM_ROOM], others[60] = "";
    form_bytes(all, (double)h->shard * x->comm->nranks);
    if (x->gemms > 1)
        snprintf(others, sizeof others, " (and %zu more GEMMs likewise)", x->gemms - 1);
    if (strcmp(readings[i].reads, "elsewhere") == 0)
        advice_add(a, ADVICE_JOIN, 0,
                   "No GEMM consumes the gathers of %s: a GEMM of m %" PRIu64 ", n %" PRIu64 ", k %" PRIu64
                   " %s A at %s, B at %s, gathered was %s%s; %s.",
                   all, h->m, h->n, h->k, readings[i].what, h->a ? h->a : "?", h->b ? h->b : "?",
                   h->recv ? h->recv : "?", others, readings[i].cure);
    else
        advice_add(a, ADVICE_JOIN, 0,
                   "A GEMM of m %" PRIu64 ", n %" PRIu64 ", k %" PRIu64
                   " (ops %s) %s %s, of %s that were gathered%s; %s.",
                   h->m, h->n, h->k, h->trans ? h->trans : "?", readings[i].what,
                   form_bytes(bytes, (double)h->read_bytes), all, others, readings[i].cure);
}

void advise_readings(struct report *r, struct advices *a)
{
    for (size_t i = 0; i < sizeof readings / sizeof *readings; i++) {
        struct reading x = {0};
        find(r, readings[i].reads, &x);
        if (x.gemms)
            tell(a, i, &x);
    }
}
