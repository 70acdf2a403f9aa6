/* For each call site of moved gathers: how much of a gather's time was hidden, and how much exposed. */
#include "tools/report.h"

static double gathers_of(const struct site *s)
{
    double n = 0;
    for (size_t i = 0; i < s->ranks.n; i++)
        n += (double)s->ranks.at[i].calls;
    return n > 0 ? n : 1;
}

static void put_bar(struct report *r, size_t i, double longest)
{
    const struct site *s = &r->sites.list.at[i];
    double n = gathers_of(s), hidden = s->hidden_sum / n, exposed = (s->time_sum - s->hidden_sum) / n;
    char label[80], buf[4][FORM_ROOM];
    FILE *to = r->o->to;
    site_label(&r->sites, i, label, sizeof label);
    fputs("<div class=\"name\"><b>", to);
    html_text(to, label);
    fprintf(to, "</b>, %s</div>\n<div class=\"bar\" role=\"img\" aria-label=\"%s hidden, %s exposed\">",
            form_bytes(buf[0], (double)s->shard), form_time(buf[1], hidden), form_time(buf[2], exposed));
    fprintf(
        to,
        "<span class=\"hid\" style=\"width:%.2f%%\"></span><span class=\"exp\" style=\"width:%.2f%%\"></span></div>\n",
        100 * hidden / longest, 100 * exposed / longest);
    fprintf(to, "<div class=\"num\">%s hidden, %s exposed: %s overlap</div>\n", buf[1], buf[2],
            form_share(buf[3], overlap_of(s->hidden_sum, s->time_sum)));
}

void report_bars(struct report *r)
{
    size_t chosen[SITES_SHOWN], n = report_chosen_sites(r, false, chosen, SITES_SHOWN);
    double longest = 0;
    for (size_t i = 0; i < n; i++) {
        const struct site *s = &r->sites.list.at[chosen[i]];
        double time = s->time_sum / gathers_of(s);
        longest = time > longest ? time : longest;
    }
    if (longest <= 0)
        return;
    out_section(r->o, "overlap", "Hidden and exposed time of each call site");
    out_say(r->o,
            "Mean of a moved gather. Hidden: the application's stream worked meanwhile. Exposed: it stood still.");
    fputs("<ul class=\"legend\"><li><svg width=\"26\" height=\"14\"><rect class=\"gemm\" width=\"26\" height=\"14\" "
          "rx=\"2\"/></svg>hidden</li>"
          "<li><svg width=\"26\" height=\"14\"><rect class=\"wait\" x=\".5\" y=\".5\" width=\"25\" height=\"13\" "
          "rx=\"2\"/></svg>exposed</li></ul>\n"
          "<div class=\"bars\">\n",
          r->o->to);
    for (size_t i = 0; i < n; i++)
        if (r->sites.list.at[chosen[i]].traced)
            put_bar(r, chosen[i], longest);
    fputs("</div>\n", r->o->to);
}
