/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline: ranks below each other, their lanes as rows, one axis of time. Names are a picture
 * of their own, so that they stay in sight when the other one scrolls. */
#include <inttypes.h>
#include <string.h>
#include "tools/common/utf8.h"
#include "tools/model/bars.h"
#include "tools/report/report.h"
#include "tools/report/window.h"

enum { CHART = 1090, NAMES = 106, ROW = 19, BAR = 15, HEAD = 24, RANK_GAP = 12, RANKS_SHOWN = 8, BARS_SHOWN = 6000 };

struct picture {
    FILE *to;
    struct window w;
    struct bars bars[RANKS_SHOWN];
    uint32_t rank[RANKS_SHOWN];
    size_t ranks, drawn;
    double from, scale; /* ns, pixels per ns */
    unsigned height;
};

/* What a bar looks like: class in the style sheet, and the texts that may stand in it, the longest
 * that fits. */
struct look {
    const char *class;
    char text[3][80];
};

static double x_of(const struct picture *p, int64_t t)
{
    double x = ((double)t - p->from) * p->scale;
    return x < 0 ? 0 : x > CHART ? CHART : x;
}

/* The way in which a lane of one rank begins below the top of the rank. */
static unsigned lane_top(const struct bars *b, unsigned lane)
{
    unsigned rows = 0;
    for (unsigned i = 0; i < lane; i++)
        rows += i == BAR_PROFILER ? 0 : b->rows[i]; /* when NCCL was told is no work of the device's */
    return rows * ROW;
}

static unsigned rank_height(const struct bars *b)
{
    return lane_top(b, BAR_LANES) + RANK_GAP;
}

static void look_of_span(struct look *l, const struct bar *b)
{
    static const char *const classes[SPAN_KINDS] = {"copy", "copy", "push", "pull", "wait", "gemm", "nccl", "copy"};
    const struct span *s = b->span;
    l->class = classes[s->kind];
    bar_name(b, l->text[0], sizeof l->text[0]);
    switch ((enum span_kind)s->kind) {
    case SPAN_OWN:
        snprintf(l->text[1], sizeof l->text[1], "own");
        break;
    case SPAN_SUM:
        snprintf(l->text[1], sizeof l->text[1], "sum");
        break;
    case SPAN_GEMM:
        snprintf(l->text[1], sizeof l->text[1], "G%d", s->piece);
        break;
    case SPAN_NCCL:
        snprintf(l->text[1], sizeof l->text[1], "NCCL");
        break;
    default:
        if (s->peer >= 0)
            snprintf(l->text[1], sizeof l->text[1], "%s %d",
                     s->kind == SPAN_PUSH   ? "to"
                     : s->kind == SPAN_PULL ? "from"
                                            : "for",
                     s->peer);
        if (s->peer >= 0)
            snprintf(l->text[2], sizeof l->text[2], "%d", s->peer);
    }
}

static void look_of(struct look *l, const struct bar *b)
{
    *l = (struct look){0};
    if (b->span) {
        look_of_span(l, b);
        return;
    }
    if (b->other) {
        l->class = "nccl";
        bar_name(b, l->text[0], sizeof l->text[0]);
        return;
    }
    l->class = "gather";
    const char *how = b->gather->pass ? b->gather->reason : b->gather->ended;
    if (how && reason_meaning(how) && strcmp(how, "fused") != 0)
        how = b->gather->pass ? "by NCCL" : "waited for";
    const bool gather = b->gather->op == SLR_ALL_GATHER;
    snprintf(l->text[0], sizeof l->text[0], "%s %" PRIu64 ": %s%s%.40s", b->gather->pass ? "NCCL, call" : "call",
             b->gather->call, gather ? "" : slr_collectives[b->gather->op].words, gather ? "" : ", ", how ? how : "?");
    snprintf(l->text[1], sizeof l->text[1], "%s %" PRIu64, b->gather->pass ? "NCCL, call" : "call", b->gather->call);
    if (!b->gather->pass) /* those count by themselves */
        snprintf(l->text[2], sizeof l->text[2], "%" PRIu64, b->gather->call);
}

/* What a pointer that rests on a bar is told. */
static void put_hint(struct picture *p, const struct bar *b)
{
    char name[80], time[FORM_ROOM], at[FORM_ROOM], bytes[FORM_ROOM];
    double begin = (double)b->begin - p->from;
    fputs("<title>", p->to);
    html_text(p->to, bar_name(b, name, sizeof name));
    fprintf(p->to, ": %s, from %s%s", form_time(time, (double)(b->end - b->begin)), begin < 0 ? "-" : "",
            form_time(at, begin < 0 ? -begin : begin));
    if (b->span && b->span->bytes)
        fprintf(p->to, ", %s", form_bytes(bytes, (double)b->span->bytes));
    if (b->span)
        fprintf(p->to, ", call %" PRIu64, b->span->call);
    if (b->span && b->span->piece >= 0 && b->span->kind != SPAN_GEMM)
        fprintf(p->to, ", piece %d", b->span->piece);
    if (b->gather && !b->gather->pass)
        fprintf(p->to, ", %s exposed", form_time(at, (double)b->gather->exposed));
    fputs("</title>", p->to);
}

static void put_label(struct picture *p, const struct look *l, double x, double width, double y)
{
    for (int i = 0; i < 3; i++) {
        double needed = 6.4 * (double)utf8_count(l->text[i]) + 5;
        if (!l->text[i][0] || needed > width)
            continue;
        fprintf(p->to, "<text class=\"%s-t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", l->class, x + width / 2,
                y + 11.5);
        html_text(p->to, l->text[i]);
        fputs("</text>", p->to);
        return;
    }
}

/* Waits of the side streams are thin: they cost the program nothing. */
static void put_bar(struct picture *p, const struct bar *b, double top)
{
    struct look l;
    bool thin = b->span && b->span->kind == SPAN_WAIT && b->lane != BAR_APP;
    double x = x_of(p, b->begin), width = x_of(p, b->end) - x, y = top + b->row * ROW + (thin ? 4 : 0);
    if (p->drawn++ >= BARS_SHOWN)
        return;
    look_of(&l, b);
    fprintf(p->to, "<g><rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" rx=\"2\"/>", l.class, x, y,
            width < 0.7 ? 0.7 : width, thin ? BAR - 8 : BAR);
    put_hint(p, b);
    if (!thin)
        put_label(p, &l, x, width, y);
    fputs("</g>\n", p->to);
}

/* 1, 2 or 5 times a power of ten, so that there are about eight. */
static double tick_step(double span)
{
    double step = 1;
    while (step * 10 <= span / 8)
        step *= 10;
    return span / 8 > step * 5 ? step * 10 : span / 8 > step * 2 ? step * 5 : span / 8 > step ? step * 2 : step;
}

static void put_axis(struct picture *p)
{
    double span = CHART / p->scale, step = tick_step(span);
    const char *unit = span >= 2e6 ? "ms" : span >= 2e3 ? "µs" : "ns";
    double one = span >= 2e6 ? 1e6 : span >= 2e3 ? 1e3 : 1;
    for (double t = 0; t < span; t += step) {
        double x = t * p->scale;
        fprintf(p->to, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%u\"/>", x, x, HEAD - 6, p->height);
        if (x < CHART - 40)
            fprintf(p->to, "<text class=\"dim\" x=\"%.1f\" y=\"%d\">%.4g %s</text>\n", x + 3, HEAD - 9, t / one, unit);
    }
}

static void put_chart(struct picture *p)
{
    double top = HEAD;
    fprintf(
        p->to,
        "<svg width=\"%d\" height=\"%u\" role=\"img\" aria-label=\"Timeline of %zu ranks; the tables below have its "
        "figures\">\n",
        CHART, p->height, p->ranks);
    for (size_t i = 0; i < p->ranks; i++, top += rank_height(&p->bars[i - 1]))
        if (i % 2 == 0)
            fprintf(p->to, "<rect class=\"band\" x=\"0\" y=\"%.1f\" width=\"%d\" height=\"%u\"/>\n", top - 4, CHART,
                    rank_height(&p->bars[i]));
    put_axis(p);
    top = HEAD;
    for (size_t i = 0; i < p->ranks; i++) {
        const struct bars *b = &p->bars[i];
        for (size_t k = 0; k < b->list.n && b->list.at[k].lane != BAR_PROFILER; k++) /* it is the last lane */
            put_bar(p, &b->list.at[k], top + lane_top(b, b->list.at[k].lane));
        top += rank_height(b);
    }
    fputs("</svg>\n", p->to);
}

static void put_names(struct picture *p, const struct report *r)
{
    double top = HEAD;
    fprintf(p->to, "<svg class=\"names\" width=\"%d\" height=\"%u\" aria-hidden=\"true\">\n", NAMES, p->height);
    for (size_t i = 0; i < p->ranks; i++) {
        const struct bars *b = &p->bars[i];
        char label[40];
        snprintf(label, sizeof label, "%.16s", r->m->ranks.at[p->rank[i]].label);
        if (i % 2 == 0)
            fprintf(p->to, "<rect class=\"band\" x=\"0\" y=\"%.1f\" width=\"%d\" height=\"%u\"/>\n", top - 4, NAMES,
                    rank_height(b));
        fprintf(p->to, "<text class=\"b\" x=\"6\" y=\"%.1f\">", top + 11.5);
        html_text(p->to, label);
        fputs("</text>\n", p->to);
        for (unsigned k = 1; k < BAR_PROFILER; k++)
            if (b->rows[k])
                fprintf(p->to, "<text class=\"dim\" x=\"16\" y=\"%.1f\">%s</text>\n", top + lane_top(b, k) + 11.5,
                        bar_lane_names[k]);
        top += rank_height(b);
    }
    fputs("</svg>\n", p->to);
}

static void legend_row(FILE *to, const char *class, const char *text, bool thin)
{
    fprintf(to,
            "<li><svg width=\"26\" height=\"14\" aria-hidden=\"true\"><rect class=\"%s\" x=\".5\" y=\"%s\" "
            "width=\"25\" height=\"%d\" "
            "rx=\"2\"/></svg>%s</li>\n",
            class, thin ? "3.5" : ".5", thin ? 7 : 13, text);
}

static void put_legend(FILE *to)
{
    fputs("<ul class=\"legend\">\n", to);
    legend_row(to, "gather",
               "a gather: from the call until the last byte is there; a reduce-scatter: from its first part to its "
               "last sum; an "
               "all-reduce: to the last sum that is copied",
               false);
    legend_row(to, "gemm", "part of a GEMM (G0, G1, ...)", false);
    legend_row(to, "wait", "the application's stream stands still", false);
    legend_row(to, "wait", "a side stream waits for a peer", true);
    legend_row(to, "copy", "own shard to its place, or into the slot; contributions are added", false);
    legend_row(to, "pull", "shard, or sums of it, pulled from a peer", false);
    legend_row(to, "push", "shard, or part of one, pushed to a peer", false);
    legend_row(to, "nccl", "NCCL", false);
    fputs("</ul>\n", to);
}

static void say_what(struct report *r, const struct picture *p)
{
    const struct window *w = &p->w;
    char calls[80], time[FORM_ROOM];
    if (w->first == w->last)
        snprintf(calls, sizeof calls, "Call %" PRIu64, w->first);
    else
        snprintf(calls, sizeof calls, "Calls %" PRIu64 " to %" PRIu64, w->first, w->last);
    out_say(r->o,
            "%s of%s communicator %s, %s: a window of usual length out of the steady state (%zu windows could be "
            "shown, %zu end "
            "like this one). Times count from the first rank's reaching the call. `slipring trace` has everything.",
            calls, w->pass ? " those that stayed with NCCL," : "", r->m->comms.at[w->comm].name,
            form_time(time, (double)(w->end - w->begin)), w->windows, w->like);
    if (r->run->ranks.n > p->ranks)
        out_say(r->o, "%zu of %zu ranks are shown.", p->ranks, r->run->ranks.n);
    if (run_is_software(r->m, r->run))
        out_say(r->o, "Software GPU: these times are a model's or a CPU's, not a GPU's.");
}

void report_timeline(struct report *r)
{
    struct picture p = {.to = r->o->to, .height = HEAD + 6};
    if (!window_find(&p.w, r))
        return;
    double length = (double)(p.w.end - p.w.begin);
    p.from = (double)p.w.begin;
    p.scale = CHART / (1.01 * length);
    for (size_t i = 0; i < r->run->ranks.n && p.ranks < RANKS_SHOWN; i++) {
        p.rank[p.ranks] = r->run->ranks.at[i];
        bars_find(&p.bars[p.ranks], r->m, r->run->ranks.at[i], p.w.begin, p.w.end, (int64_t)(1.5 / p.scale));
        p.height += rank_height(&p.bars[p.ranks++]);
    }
    out_section(r->o, "timeline", "Timeline");
    say_what(r, &p);
    fputs("<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><pattern id=\"hatch\" "
          "width=\"6\" height=\"6\" "
          "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect class=\"hb\" width=\"6\" "
          "height=\"6\"/><line class=\"hl\" "
          "x1=\"1\" x2=\"1\" y1=\"0\" y2=\"6\"/></pattern></svg>\n",
          p.to);
    put_legend(p.to);
    fputs("<div class=\"box tl-box\" tabindex=\"0\" role=\"group\" aria-label=\"Timeline\"><div class=\"tl\">\n", p.to);
    put_names(&p, r);
    put_chart(&p);
    fputs("</div></div>\n", p.to);
    if (p.drawn > BARS_SHOWN)
        out_say(r->o, "%zu bars more are not drawn.", p.drawn - BARS_SHOWN);
    for (size_t i = 0; i < p.ranks; i++)
        bars_free(&p.bars[i]);
}
