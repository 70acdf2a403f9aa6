/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/model/model.h"
#include <stdlib.h>
#include <string.h>
#include "tools/model/model_tables.h"

const char *const span_names[SPAN_KINDS] = {"own", "stage", "push", "pull", "wait", "gemm", "nccl", "sum"};
static const char *const lane_names[LANES] = {"app", "publish", "pull", "copy"};
enum { NOTES_MOST = 200, NOTE_TEXT = 400 };

void model_init(struct model *m, struct log_reader *reader)
{
    *m = (struct model){.tables = model_tables_new(), .reader = reader};
}

static void free_member(struct member *b)
{
    vec_free(&b->gathers);
    vec_free(&b->scatters);
    vec_free(&b->spans);
    vec_free(&b->collectives);
    vec_free(&b->sums);
    vec_free(&b->places);
    vec_free(&b->placed);
    vec_free(&b->shapes);
    vec_free(&b->scatter_shapes);
    vec_free(&b->callers);
    vec_free(&b->trials);
    vec_free(&b->duels);
    vec_free(&b->ways);
    vec_free(&b->trial_sites);
    vec_free(&b->call_sites);
}

void model_free(struct model *m)
{
    for (size_t i = 0; i < m->members.n; i++)
        free_member(&m->members.at[i]);
    for (size_t i = 0; i < m->comms.n; i++) {
        vec_free(&m->comms.at[i].phases);
        vec_free(&m->comms.at[i].symmetry);
        vec_free(&m->comms.at[i].members);
        vec_free(&m->comms.at[i].sites);
    }
    for (size_t i = 0; i < m->processes.n; i++) {
        for (int id = 0; id < SLR_COLLECTIVES; id++)
            vec_free(&m->processes.at[i].counts[id]);
        vec_free(&m->processes.at[i].notes);
        vec_free(&m->processes.at[i].tuned);
    }
    for (size_t i = 0; i < m->runs.n; i++) {
        vec_free(&m->runs.at[i].processes);
        vec_free(&m->runs.at[i].comms);
        vec_free(&m->runs.at[i].ranks);
    }
    vec_free(&m->members);
    vec_free(&m->comms);
    vec_free(&m->processes);
    vec_free(&m->runs);
    vec_free(&m->ranks);
    vec_free(&m->starts);
    model_tables_free(m->tables);
}

static int find_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static bool passed(const struct log_record *r)
{
    return r->text[F_DECISION] && strcmp(r->text[F_DECISION], "pass") == 0;
}

enum slr_collective_id model_op(const struct log_record *r)
{
    for (int id = 0; id < SLR_COLLECTIVES && r->text[F_OP]; id++)
        if (strcmp(r->text[F_OP], slr_collectives[id].op) == 0)
            return (enum slr_collective_id)id;
    return SLR_ALL_GATHER;
}

/* Lines scatter of older libraries have no `op`. */
static enum slr_collective_id op_of_traced(const struct log_record *r)
{
    return r->event == E_SCATTER && !r->text[F_OP] ? SLR_REDUCE_SCATTER : model_op(r);
}

static const char *text(struct model *m, const struct log_record *r, enum log_field f)
{
    return model_intern(m, r->text[f]);
}

static void add_gather(struct model *m, struct member *b, const struct log_record *r)
{
    b->cut += (uint64_t)r->num[F_CUT];
    struct gather g = {.begin = r->num[F_BEGIN],
                       .end = r->num[F_END],
                       .exposed = r->num[F_EXPOSED],
                       .clock_error = r->num[F_ERROR],
                       .call = (uint64_t)r->num[F_CALL],
                       .shard = (uint64_t)r->num[F_SHARD],
                       .count = (uint64_t)r->num[F_COUNT],
                       .reason = text(m, r, F_REASON),
                       .ended = text(m, r, F_ENDED),
                       .dtype = text(m, r, F_DTYPE),
                       .stream = text(m, r, F_STREAM),
                       .slot = (uint32_t)r->num[F_SLOT],
                       .place = (uint32_t)r->num[F_PLACE],
                       .push = (uint32_t)r->num[F_PUSH],
                       .pieces = (uint32_t)r->num[F_PIECES],
                       .parts = (uint32_t)r->num[F_PARTS],
                       .in_place = r->num[F_IN_PLACE] != 0,
                       .pass = passed(r),
                       .op = op_of_traced(r)};
    if (!model_context(m, r, &g.context))
        return;
    if (r->event == E_SCATTER)
        vec_push(&b->scatters, g);
    else
        vec_push(&b->gathers, g);
}

static void add_span(struct model *m, struct member *b, const struct log_record *r)
{
    int lane = find_name(lane_names, LANES, r->text[F_LANE]), kind = find_name(span_names, SPAN_KINDS, r->text[F_KIND]);
    if (lane < 0) {
        log_problem(m->reader, r->line, "field \"lane\" is none that is known, expected app, publish, pull or copy");
        return;
    }
    if (kind < 0) {
        log_problem(m->reader, r->line,
                    "field \"kind\" is none that is known, expected own, stage, push, pull, wait, gemm, nccl or sum");
        return;
    }
    vec_push(&b->spans, ((struct span){.begin = r->num[F_BEGIN],
                                       .end = r->num[F_END],
                                       .call = (uint64_t)r->num[F_CALL],
                                       .bytes = (uint64_t)r->num[F_BYTES],
                                       .peer = r->has[F_PEER] ? (int32_t)r->num[F_PEER] : -1,
                                       .piece = r->has[F_PIECE] ? (int32_t)r->num[F_PIECE] : -1,
                                       .lane = (uint8_t)lane,
                                       .kind = (uint8_t)kind,
                                       .pass = passed(r)}));
}

static void add_collective(struct model *m, struct member *b, const struct log_record *r)
{
    vec_push(&b->collectives, ((struct collective){.begin = r->num[F_BEGIN],
                                                   .end = r->num[F_END],
                                                   .kernel = r->num[F_KERNEL_NS],
                                                   .seq = (uint64_t)r->num[F_SEQ],
                                                   .call = (uint64_t)r->num[F_CALL],
                                                   .count = (uint64_t)r->num[F_COUNT],
                                                   .bytes = (uint64_t)r->num[F_BYTES],
                                                   .func = text(m, r, F_FUNC),
                                                   .dtype = text(m, r, F_DTYPE),
                                                   .reason = text(m, r, F_REASON),
                                                   .algo = text(m, r, F_ALGO),
                                                   .proto = text(m, r, F_PROTO),
                                                   .stream = text(m, r, F_STREAM),
                                                   .channels = (uint32_t)r->num[F_CHANNELS],
                                                   .profiled = r->event == E_NCCL}));
}

static void add_sum(struct model *m, struct member *b, const struct log_record *r)
{
    vec_push(&b->sums, ((struct collective_sum){.func = text(m, r, F_FUNC),
                                                .dtype = text(m, r, F_DTYPE),
                                                .reason = text(m, r, F_REASON),
                                                .algo = text(m, r, F_ALGO),
                                                .proto = text(m, r, F_PROTO),
                                                .bytes = (uint64_t)r->num[F_BYTES],
                                                .calls = (uint64_t)r->num[F_CALLS],
                                                .timed = (uint64_t)r->num[r->has[F_TIMED] ? F_TIMED : F_CALLS],
                                                .channels = (uint64_t)r->num[F_CHANNELS],
                                                .min = r->num[F_MIN_NS],
                                                .mean = r->num[F_MEAN_NS],
                                                .max = r->num[F_MAX_NS]}));
}

static void add_communicator(struct model *m, struct member *b, const struct log_record *r)
{
    b->ring = !passed(r);
    b->hosts = r->has[F_HOSTS] ? (uint64_t)r->num[F_HOSTS] : 0;
    b->inside = r->has[F_INSIDE] ? text(m, r, F_INSIDE) : NULL;
    b->reason = text(m, r, F_REASON);
    if (r->has[F_PEER] && r->num[F_PEER] != 0xffff)
        b->peer = (int32_t)r->num[F_PEER];
}

static void add_connected(struct member *b, const struct log_record *r)
{
    const uint64_t slot = (uint64_t)r->num[F_SLOT_BYTES];
    b->slot_bytes = slot > b->slot_bytes ? slot : b->slot_bytes;
    b->staging_bytes = (uint64_t)r->num[F_STAGING_BYTES];
}

static void add_held(struct member *b, const struct log_record *r)
{
    b->staging_bytes = (uint64_t)r->num[F_STAGING_BYTES];
    b->mapped_bytes = (uint64_t)r->num[F_MAPPED_BYTES];
    b->exported_bytes = (uint64_t)r->num[F_EXPORTED_BYTES];
}

static void add_shape(struct model *m, struct member *b, const struct log_record *r)
{
    struct shape s = {.event = r->event,
                      .op = model_op(r),
                      .shard = (uint64_t)r->num[F_SHARD],
                      .count = (uint64_t)r->num[F_COUNT],
                      .parts = (uint64_t)r->num[F_PARTS],
                      .m = (uint64_t)r->num[F_M],
                      .n = (uint64_t)r->num[F_N],
                      .k = (uint64_t)r->num[F_K],
                      .in_place = r->num[F_IN_PLACE] != 0,
                      .made = r->num[F_MADE] != 0,
                      .dtype = text(m, r, F_DTYPE),
                      .reason = text(m, r, F_REASON),
                      .by = text(m, r, F_BY),
                      .form = text(m, r, F_FORM),
                      .api = text(m, r, F_API),
                      .via = text(m, r, F_VIA),
                      .reads = text(m, r, F_READS),
                      .trans = text(m, r, F_TRANS),
                      .recv = text(m, r, F_RECV),
                      .a = text(m, r, F_A),
                      .b = text(m, r, F_B),
                      .read_bytes = (uint64_t)r->num[F_READ_BYTES]};
    if (s.op != SLR_ALL_GATHER || r->event == E_PRODUCED)
        vec_push(&b->scatter_shapes, s);
    else
        vec_push(&b->shapes, s);
}

static void add_count(struct model *m, struct process *p, const struct log_record *r)
{
    const enum slr_collective_id op = r->event == E_COUNT           ? SLR_ALL_GATHER
                                      : r->event == E_SCATTER_COUNT ? SLR_REDUCE_SCATTER
                                                                    : SLR_ALL_REDUCE;
    struct reason_count c = {text(m, r, F_REASON), (uint64_t)r->num[F_N]};
    for (size_t i = 0; i < p->counts[op].n; i++)
        if (p->counts[op].at[i].reason == c.reason) {
            p->counts[op].at[i] = c;
            return;
        }
    vec_push(&p->counts[op], c);
}

static void add_sums_of_process(struct process *p, const struct log_record *r)
{
    for (unsigned f = 0; f < F_FIELDS; f++)
        if (r->has[f] && !r->text[f] && f != F_TS && f != F_WALL && f != F_PID && f != F_RANK)
            p->summary[f] = r->num[f];
    if (r->event == E_TOTALS)
        p->totals_ts = r->num[F_TS];
    p->has_summary |= r->event == E_SUMMARY;
    p->has_blocks |= r->event == E_BLOCKS;
}

/* The line without what every line has: {"ts":..,"event":"x", REST}. */
static const char *rest_of_line(const char *json)
{
    const char *event = strstr(json, "\"event\":\""), *end = event ? strchr(event + 9, '"') : NULL;
    return end && end[1] == ',' ? end + 2 : "";
}

static void add_note(struct model *m, struct process *p, const struct log_record *r)
{
    char cut[NOTE_TEXT];
    const char *rest = rest_of_line(r->json);
    snprintf(cut, sizeof cut, "%.*s", (int)strcspn(rest, "\r\n"), rest);
    size_t len = strlen(cut);
    if (len > 0 && cut[len - 1] == '}')
        cut[len - 1] = '\0';
    struct note n = {text(m, r, F_LEVEL), text(m, r, F_EVENT), model_intern(m, cut), 1};
    for (size_t i = 0; i < p->notes.n; i++)
        if (p->notes.at[i].event == n.event && (p->notes.at[i].text == n.text || p->notes.n >= NOTES_MOST)) {
            p->notes.at[i].n++;
            return;
        }
    vec_push(&p->notes, n);
}

static void add_tuned(struct model *m, struct process *p, const struct log_record *r)
{
    vec_push(&p->tuned, ((struct tuned){.func = text(m, r, F_FUNC),
                                        .algo = text(m, r, F_ALGO),
                                        .proto = text(m, r, F_PROTO),
                                        .from = text(m, r, F_FROM),
                                        .bytes = (uint64_t)r->num[F_BYTES],
                                        .nranks = (uint64_t)r->num[F_NRANKS],
                                        .channels = (int32_t)r->num[F_CHANNELS]}));
}

static void add_to_member(struct model *m, uint32_t process, const struct log_record *r)
{
    uint32_t comm = model_comm(m, r->text[F_COMM], process);
    uint32_t member = model_member(m, process, comm, (int32_t)r->num[F_CRANK]);
    struct member *b = &m->members.at[member];
    struct comm *c = &m->comms.at[comm];
    if ((uint32_t)r->num[F_NRANKS] > c->nranks)
        c->nranks = (uint32_t)r->num[F_NRANKS];
    if (r->num[F_CRANK] >= 0 && (uint32_t)r->num[F_CRANK] >= c->nranks)
        c->nranks = (uint32_t)r->num[F_CRANK] + 1;
    switch (r->event) {
    case E_TRACE_START:
        b->device = text(m, r, F_DEVICE);
        b->device_name = text(m, r, F_NAME);
        b->every = (uint64_t)r->num[F_EVERY];
        break;
    case E_TRACE_END:
        b->dropped = (uint64_t)r->num[F_DROPPED];
        b->failed = (uint64_t)r->num[F_FAILED];
        b->unfinished = (uint64_t)r->num[F_UNFINISHED];
        break;
    case E_GATHER:
    case E_SCATTER:
        add_gather(m, b, r);
        break;
    case E_SPAN:
        add_span(m, b, r);
        break;
    case E_COLLECTIVE:
    case E_NCCL:
        add_collective(m, b, r);
        break;
    case E_NCCL_SUM:
        add_sum(m, b, r);
        break;
    case E_COMMUNICATOR:
        add_communicator(m, b, r);
        break;
    case E_COMMUNICATOR_FAILED:
        b->failure = (struct failure){.ts = r->num[F_TS],
                                      .peer = r->has[F_PEER] ? (int32_t)r->num[F_PEER] : -1,
                                      .call = (uint64_t)r->num[F_CALL],
                                      .why = r->text[F_MSG] ? text(m, r, F_MSG) : "no reason is told"};
        break;
    case E_CONNECTED:
        add_connected(b, r);
        break;
    case E_HELD:
        add_held(b, r);
        break;
    case E_PLACE:
        model_add_place(m, b, r);
        break;
    case E_PLACES:
        model_add_placed(m, b, r);
        break;
    case E_PLACES_END:
        model_add_places_end(b, r);
        break;
    case E_SUBSTITUTE:
    case E_PASS:
    case E_FUSED:
    case E_JOINED:
    case E_OVERTAKEN:
    case E_PRODUCED:
        add_shape(m, b, r);
        break;
    case E_CALLER:
    case E_CALLER_PLACE:
        model_add_caller(m, b, r);
        break;
    case E_TRIED:
        model_add_trial(m, b, r);
        break;
    case E_DUEL:
        model_add_duel(m, b, r);
        break;
    case E_DUEL_OF:
        model_add_duel_of(m, b, r);
        break;
    case E_SITE_WAY:
        model_add_site_way(m, b, r);
        break;
    default:
        break;
    }
}

static void note_time(struct process *p, const struct log_record *r)
{
    int64_t ts = r->num[F_TS];
    if (p->last_ts == 0 || ts < p->first_ts) {
        p->first_ts = ts;
        p->wall_offset = r->has[F_WALL] ? r->num[F_WALL] - ts : p->wall_offset;
    }
    if (ts >= p->last_ts)
        p->last_ts = ts ? ts : 1;
    if (r->has[F_RANK] && r->num[F_RANK] >= 0)
        p->rank = (int32_t)r->num[F_RANK];
}

/* False: this file begins as another one did, so it is a copy of it, or of its beginning. */
static bool new_file(struct model *m, uint32_t process, const struct log_record *r)
{
    const struct log_problems *p = &m->reader->problems;
    if (!m->reader->first_line)
        return true;
    for (size_t i = 0; i < m->starts.n; i++)
        if (m->starts.at[i].process == process && m->starts.at[i].ts == r->num[F_TS]) {
            if (p->to)
                fprintf(p->to, "%s: the same log as %s; used once\n", p->file, m->starts.at[i].file);
            return false;
        }
    vec_push(&m->starts, ((struct file_start){process, r->num[F_TS], model_intern(m, p->file)}));
    return true;
}

static void add_about(struct model *m, struct process *p, const struct log_record *r)
{
    p->version = text(m, r, F_VERSION);
    p->settings = text(m, r, F_SETTINGS);
    p->command = text(m, r, F_COMMAND);
    p->nccl = (uint64_t)r->num[F_NCCL_VERSION];
    p->cuda = (uint64_t)r->num[F_CUDA_VERSION];
}

bool model_add(void *ctx, const struct log_record *r)
{
    struct model *m = ctx;
    uint32_t i = model_process(m, r->text[F_HOST], r->num[F_PID]);
    if (!new_file(m, i, r))
        return false;
    const char *level = r->text[F_LEVEL];
    note_time(&m->processes.at[i], r);
    if ((level && (strcmp(level, "warn") == 0 || strcmp(level, "error") == 0)) || r->event == E_NOT_SHARED)
        add_note(m, &m->processes.at[i], r);
    if (r->event == E_COUNT || r->event == E_SCATTER_COUNT || r->event == E_REDUCE_COUNT)
        add_count(m, &m->processes.at[i], r);
    else if (r->event == E_PROCESS)
        add_about(m, &m->processes.at[i], r);
    else if (r->event == E_TUNED)
        add_tuned(m, &m->processes.at[i], r);
    else if (r->event == E_SUMMARY || r->event == E_TOTALS || r->event == E_BLOCKS)
        add_sums_of_process(&m->processes.at[i], r);
    else if (r->event != E_OTHER && r->text[F_COMM] && r->has[F_CRANK])
        add_to_member(m, i, r);
    return true;
}

static void at_least(int64_t *sum, uint64_t n)
{
    if (*sum < (int64_t)n)
        *sum = (int64_t)n;
}

/* What the lines of a process without an end show of each collective. */
static void count_lines(struct model *m, uint32_t process)
{
    static const enum log_field calls[SLR_COLLECTIVES] = {F_CALLS, F_SCATTERS, F_REDUCES},
                                moved[SLR_COLLECTIVES] = {F_SUBSTITUTED, F_SCATTERS_SUBSTITUTED, F_REDUCES_SUBSTITUTED};
    uint64_t n[SLR_COLLECTIVES] = {0}, ring[SLR_COLLECTIVES] = {0};
    struct process *p = &m->processes.at[process];
    for (size_t i = 0; i < m->members.n; i++) {
        const struct member *b = &m->members.at[i];
        if (b->process != process)
            continue;
        for (size_t k = 0; k < b->gathers.n; k++) {
            n[SLR_ALL_GATHER]++;
            ring[SLR_ALL_GATHER] += !b->gathers.at[k].pass;
        }
        for (size_t k = 0; k < b->scatters.n; k++) {
            n[b->scatters.at[k].op]++;
            ring[b->scatters.at[k].op]++;
        }
    }
    for (int op = 0; op < SLR_COLLECTIVES; op++) {
        at_least(&p->summary[calls[op]], n[op]);
        at_least(&p->summary[moved[op]], ring[op]);
    }
    p->summary[F_PASSED] = p->summary[F_CALLS] - p->summary[F_SUBSTITUTED];
}

void model_finish(struct model *m)
{
    for (uint32_t i = 0; i < m->processes.n; i++)
        if (!m->processes.at[i].has_summary)
            count_lines(m, i);
    model_order(m);
    model_find_places(m);
    model_find_sites(m);
    model_find_runs(m);
}
