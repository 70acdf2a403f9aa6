/* SPDX-License-Identifier: Apache-2.0 */
/* The run at a glance. */
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include "tools/report/report.h"

static const struct column columns[] = {{"", false, false}, {"", false, true}};

static void row(struct table *t, const char *name)
{
    table_cell(t, "%s", name);
}

static void put_when(struct report *r, struct table *t)
{
    char when[64] = "unknown", took[FORM_ROOM];
    time_t s = (time_t)(r->run->wall / 1000000000);
    struct tm utc;
    if (r->run->wall > 0 && gmtime_r(&s, &utc))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &utc);
    row(t, "When");
    table_cell(t, "%s, %s from the first log line to the last", when,
               form_time(took, (double)(r->run->last_ts - r->run->first_ts)));
}

/* Each text once, with `between` between them; a few of them. */
static void add_once(char *list, size_t size, const char *between, const char *text)
{
    const char *at = text ? strstr(list, text) : list;
    if (at || strlen(list) + strlen(text) + 8 > size)
        return;
    snprintf(list + strlen(list), size - strlen(list), "%s%s", *list ? between : "", text);
}

static void put_where(struct report *r, struct table *t)
{
    char hosts[200] = "", devices[200] = "";
    unsigned ranks = 0;
    for (size_t i = 0; i < r->run->processes.n; i++)
        add_once(hosts, sizeof hosts, ", ", r->m->processes.at[r->run->processes.at[i]].host);
    for (size_t i = 0; i < r->run->ranks.n; i++) {
        add_once(devices, sizeof devices, ", ", r->m->ranks.at[r->run->ranks.at[i]].device_name);
        ranks++;
    }
    row(t, "Ranks");
    table_cell(t, "%u in %zu process%s on %s", ranks, r->run->processes.n, r->run->processes.n == 1 ? "" : "es", hosts);
    row(t, "Devices");
    table_cell(t, "%s%s", *devices ? devices : "not known (trace lines have their names)",
               run_is_software(r->m, r->run) ? ": the software GPU, so all times are modelled or a CPU's, not a GPU's"
                                             : "");
}

/* "13.0", "2.28.9": as the vendors number them. */
static void put_number(char *buf, size_t size, const char *name, uint64_t n, uint64_t major, uint64_t minor)
{
    unsigned long long a = n / major, b = n % major / minor, c = n % minor;
    if (n > 0 && major == 10000)
        snprintf(buf, size, ", %s %llu.%llu.%llu", name, a, b, c);
    else if (n > 0)
        snprintf(buf, size, ", %s %llu.%llu", name, a, b);
}

static void put_program(struct report *r, struct table *t)
{
    char commands[900] = "", versions[200] = "", given[700] = "";
    for (size_t i = 0; i < r->run->processes.n; i++) {
        const struct process *p = &r->m->processes.at[r->run->processes.at[i]];
        char nccl[40] = "", cuda[40] = "", all[120];
        if (!p->version)
            continue;
        put_number(nccl, sizeof nccl, "NCCL", p->nccl, 10000, 100);
        put_number(cuda, sizeof cuda, "CUDA driver", p->cuda, 1000, 10);
        snprintf(all, sizeof all, "slipring %.20s%s%s", p->version, nccl, cuda);
        add_once(versions, sizeof versions, "; ", all);
        add_once(commands, sizeof commands, "; ", p->command ? p->command : "");
        add_once(given, sizeof given, "; ", p->settings && *p->settings ? p->settings : "all by default");
    }
    if (!*versions)
        return;
    row(t, "Command");
    table_cell(t, "%s", *commands ? commands : "not known");
    row(t, "Versions");
    table_cell(t, "%s", versions);
    row(t, "Settings");
    table_cell(t, "%s", given);
}

/* "12 from where they lie, 3 copied first": those that there were. */
static void put_shards(struct report *r, struct table *t)
{
    const struct {
        enum log_field f;
        const char *how;
    } ways[] = {
        {F_ZERO_COPY, "from where they lie"}, {F_STAGED, "copied first"}, {F_PUSHED, "written into their buffers"}};
    char list[160] = "";
    size_t len = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (report_sum(r, ways[i].f) > 0)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%.0f %s", len ? ", " : "",
                                    report_sum(r, ways[i].f), ways[i].how);
    if (!len)
        return;
    row(t, "Peers got shards");
    table_cell(t, "%s", list);
}

static void put_ring(struct report *r, struct table *t)
{
    const double fused = report_sum(r, F_FUSED);
    if (report_sum(r, F_SUBSTITUTED) == 0)
        return;
    row(t, "Over the ring");
    if (fused > 0)
        table_cell(t, "%.0f fused with their GEMM, in %.0f parts; %.0f times a stream waited for all of a gather",
                   fused, report_sum(r, F_GEMM_CHUNKS), report_sum(r, F_JOINED));
    else
        table_cell(t, "none fused with a GEMM; %.0f times a stream waited for all of a gather",
                   report_sum(r, F_JOINED));
    put_shards(r, t);
}

static void put_gathers(struct report *r, struct table *t)
{
    char bytes[FORM_ROOM];
    double calls = report_sum(r, F_CALLS), moved = report_sum(r, F_SUBSTITUTED);
    if (!report_has_summary(r) && calls == 0)
        return;
    row(t, "All-gathers");
    table_cell(t, "%s%.0f calls of all ranks, %s gathered; %.0f over the ring, %.0f by NCCL", report_least(r), calls,
               form_bytes(bytes, report_sum(r, F_BYTES)), moved, report_sum(r, F_PASSED));
    if (calls == 0)
        return;
    put_ring(r, t);
}

static void put_reductions(struct report *r, struct table *t, const char *name, enum slr_collective_id op)
{
    const bool all = op == SLR_ALL_REDUCE;
    const double calls = report_sum(r, all ? F_REDUCES : F_SCATTERS),
                 moved = report_sum(r, all ? F_REDUCES_SUBSTITUTED : F_SCATTERS_SUBSTITUTED);
    const struct reductions n = report_reductions(r, op, MODEL_NONE);
    char time[FORM_ROOM], hidden[FORM_ROOM], traced[160] = "";
    if (calls == 0 && n.traced == 0)
        return;
    if (n.traced)
        snprintf(traced, sizeof traced, "; of %s in %" PRIu64 " that were traced, %s were hidden",
                 form_time(time, n.time), n.traced, form_time(hidden, n.hidden));
    row(t, name);
    table_cell(t, "%s%.0f calls of all ranks; %.0f over the ring, %.0f by NCCL%s", report_least(r), calls, moved,
               calls - moved, traced);
}

static void put_endless(struct report *r, struct table *t)
{
    char list[600];
    if (report_endless(r, list, sizeof list) == 0)
        return;
    row(t, "Not all counted");
    table_cell(t, "%s", list);
}

static void put_overlap(struct report *r, struct table *t)
{
    char time[FORM_ROOM], hidden[FORM_ROOM], exposed[FORM_ROOM], late[FORM_ROOM], share[FORM_ROOM], median[FORM_ROOM];
    if (r->sites.ring_time <= 0 && report_reductions(r, SLR_COLLECTIVES, MODEL_NONE).traced)
        return; /* it has been said of those */
    row(t, "Overlap reached");
    if (r->sites.ring_time <= 0) {
        table_cell(t, "not known: no gather was traced (`slipring run --record DIR` traces all)");
        return;
    }
    table_cell(
        t,
        "%s: of %s in gathers over the ring, %s were hidden (all ranks together); streams stood still for %s, %s of it "
        "before the last rank had reached the call",
        form_share(share, overlap_of(r->sites.ring_hidden, r->sites.ring_time)), form_time(time, r->sites.ring_time),
        form_time(hidden, r->sites.ring_hidden), form_time(exposed, r->sites.ring_exposed),
        form_time(late, r->sites.ring_late));
    row(t, "A median gather");
    table_cell(t, "%s hidden; a fused one %s", form_share(share, (double)percentile(&r->sites.share, 50) / 1e4),
               r->sites.fused_share.n ? form_share(median, (double)percentile(&r->sites.fused_share, 50) / 1e4)
                                      : "(there is none)");
}

/* How well the ranks' times fit together, as the gathers themselves say. */
static void put_clock(struct report *r, struct table *t)
{
    struct times errors = {0};
    char half[FORM_ROOM], most[FORM_ROOM];
    for (size_t i = 0; i < r->m->members.n; i++) {
        const struct member *b = &r->m->members.at[i];
        for (size_t k = 0; k < b->gathers.n && r->m->comms.at[b->comm].run == r->index; k++)
            if (b->gathers.at[k].clock_error > 0)
                vec_push(&errors, b->gathers.at[k].clock_error);
    }
    if (errors.n) {
        row(t, "One clock");
        table_cell(t, "a rank's times are off by at most %s (median of the gathers), %s (all)",
                   form_time(half, (double)percentile(&errors, 50)), form_time(most, (double)percentile(&errors, 100)));
    }
    vec_free(&errors);
}

static void put_settings(struct report *r, struct table *t)
{
    uint64_t every = 0, slot = 0;
    char bytes[FORM_ROOM];
    for (size_t i = 0; i < r->m->members.n; i++) {
        const struct member *b = &r->m->members.at[i];
        if (r->m->comms.at[b->comm].run != r->index)
            continue;
        every = b->every > every ? b->every : every;
        slot = b->slot_bytes > slot ? b->slot_bytes : slot;
    }
    if (every > 0) {
        char each[40] = "every call";
        if (every > 1)
            snprintf(each, sizeof each, "one of %" PRIu64 " calls", every);
        row(t, "Traced");
        table_cell(t, "%s, %" PRIu64 " gather%s of all ranks", each, r->sites.traced, r->sites.traced == 1 ? "" : "s");
    }
    if (slot > 0) {
        row(t, "Staging slots");
        table_cell(t, "up to %s each, two of a size for each rank of a communicator", form_bytes(bytes, (double)slot));
    }
}

static bool is_newer(const char *version, const char *than)
{
    unsigned a[3] = {0}, b[3] = {0};
    sscanf(version, "%u.%u.%u", &a[0], &a[1], &a[2]);
    sscanf(than, "%u.%u.%u", &b[0], &b[1], &b[2]);
    for (int i = 0; i < 3; i++)
        if (a[i] != b[i])
            return a[i] > b[i];
    return false;
}

/* What a later version logs may have other names, or none here. */
static void say_newer(struct report *r)
{
    const char *newest = SLIPRING_VERSION;
    for (size_t i = 0; i < r->run->processes.n; i++) {
        const char *version = r->m->processes.at[r->run->processes.at[i]].version;
        if (version && is_newer(version, newest))
            newest = version;
    }
    if (is_newer(newest, SLIPRING_VERSION))
        out_say(r->o,
                "Logs of slipring %.20s are read by `slipring report` of " SLIPRING_VERSION
                ", which does not know what is new in them: use that of %.20s.",
                newest, newest);
}

void report_glance(struct report *r)
{
    struct table t = {.columns = columns, .n = 2};
    out_section(r->o, "run", "The run");
    put_when(r, &t);
    put_program(r, &t);
    put_where(r, &t);
    put_gathers(r, &t);
    put_reductions(r, &t, "Reduce-scatters", SLR_REDUCE_SCATTER);
    put_reductions(r, &t, "All-reduces", SLR_ALL_REDUCE);
    put_endless(r, &t);
    put_overlap(r, &t);
    put_settings(r, &t);
    put_clock(r, &t);
    out_table(r->o, &t);
    say_newer(r);
    if (r->m->runs.n > 1)
        out_say(r->o, "The logs are of %zu runs; this is run %u, in order of time (--run N chooses another).",
                r->m->runs.n, r->index + 1);
}
