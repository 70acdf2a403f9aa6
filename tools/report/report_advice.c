/* SPDX-License-Identifier: Apache-2.0 */
/* What to do: only where a reason has a cure that helps, and in the order of what it costs. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/settings.h"
#include "tools/report/advice.h"

void advice_add(struct advices *a, enum advice_kind kind, double cost, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vec_push(a, ((struct advice){kind, cost, tool_vtext(fmt, args)}));
    va_end(args);
}

/* What has failed, or does not take part, costs everything, whatever is known of its time. */
static bool is_all(const struct advice *a)
{
    return a->kind <= ADVICE_AWAY;
}

static bool is_before(const struct advice *a, const struct advice *b)
{
    if (is_all(a) != is_all(b))
        return is_all(a);
    if (a->cost > b->cost || a->cost < b->cost)
        return a->cost > b->cost;
    return a->kind < b->kind;
}

/* Those that are alike stay as they were. */
static void sort(struct advices *a)
{
    for (size_t i = 1; i < a->n; i++) {
        const struct advice moved = a->at[i];
        size_t to = i;
        for (; to > 0 && is_before(&moved, &a->at[to - 1]); to--)
            a->at[to] = a->at[to - 1];
        a->at[to] = moved;
    }
}

/* Behind "5 ms of the run: " a word is no beginning of a sentence; names and settings stay. */
static char first_letter(const char *text)
{
    return islower((unsigned char)text[1]) || text[1] == ' ' ? (char)tolower((unsigned char)*text) : *text;
}

static void tell(struct report *r, const struct advice *a)
{
    char time[FORM_ROOM];
    if (a->cost > 0)
        out_item(r->o, "%s of the run: %c%s", form_time(time, a->cost), first_letter(a->text), a->text + 1);
    else
        out_item(r->o, "%s", a->text);
}

/* Shards that are too small to lie in blocks that are known. */
static uint64_t least_shard(const struct report *r)
{
    uint64_t least = 0;
    for (size_t i = 0; i < r->sites.list.n; i++) {
        const struct site *s = &r->sites.list.at[i];
        if (!s->pass && s->shard && (!least || s->shard < least))
            least = s->shard;
    }
    return least;
}

static void advise_memory(struct report *r, struct advices *a)
{
    const double staged = report_sum(r, F_STAGED), direct = report_sum(r, F_ZERO_COPY) + report_sum(r, F_PUSHED);
    const uint64_t shard = least_shard(r);
    uint64_t known = 0;
    char kib[FORM_ROOM] = "";
    slr_setting_value(&slr_setting_rows[SLR_S_ALLOC_MIN], slr_setting_rows[SLR_S_ALLOC_MIN].def, &known);
    if (shard && shard < known)
        snprintf(kib, sizeof kib, ": SLIPRING_ALLOC_MIN=%lluK", (unsigned long long)(shard < 1024 ? 1 : shard >> 10));
    if (staged > 2 * direct && staged > 100)
        advice_add(
            a, ADVICE_COPY, 0,
            "%.0f of %.0f shards were copied into a slot first. They are used where they lie when the buffers come "
            "from cudaMalloc (of SLIPRING_ALLOC_MIN bytes or more%s), or are registered with NCCL "
            "(ncclCommRegister), or come from ncclMemAlloc.",
            staged, staged + direct, kib);
    for (size_t i = 0; i < r->run->processes.n; i++)
        if (r->m->processes.at[r->run->processes.at[i]].summary[F_EVICTIONS] > 0) {
            advice_add(a, ADVICE_COPY, 0,
                       "Kept blocks had to go for others: raise SLIPRING_ALLOC_BYTES if device memory allows it.");
            return;
        }
}

void report_advice(struct report *r)
{
    struct advices a = {0};
    advise_failures(r, &a);
    advise_late(r, &a);
    advise_sizes(r, &a);
    advise_reasons(r, &a);
    advise_readings(r, &a);
    advise_joins(r, &a);
    advise_memory(r, &a);
    advise_unknown(r, &a);
    report_scatter_advice(r, &a);
    sort(&a);
    out_section(r->o, "advice", "What to do");
    for (size_t i = 0; i < a.n; i++) {
        tell(r, &a.at[i]);
        free(a.at[i].text);
    }
    if (a.n == 0)
        out_say(r->o, "Nothing here suggests a change.");
    vec_free(&a);
}
