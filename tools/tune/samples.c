/* SPDX-License-Identifier: Apache-2.0 */
/* What the lines of the logs say. */
#include <stdlib.h>
#include <string.h>
#include "plugin/abi/nccl_common.h"
#include "tools/log/log_tail.h"
#include "tools/tune/tune.h"

static bool int_of(const json_t *line, const char *key, int low, int high, int *out)
{
    json_int_t n;
    bool good = log_number(line, key, low, high, &n);
    *out = good ? (int)n : 0;
    return good;
}

static bool name_of(const json_t *line, const char *key, int (*number)(const char *, size_t), int least, int *out)
{
    const char *text = log_text(line, key);
    *out = number(text, strlen(text));
    return *out >= least;
}

/* FNV-1a */
static uint64_t comm_id(const char *comm)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *comm; comm++)
        h = (h ^ (unsigned char)*comm) * 0x100000001b3u;
    return h;
}

static uint64_t rank_id(uint64_t comm, int crank)
{
    return (comm ^ (uint64_t)crank) * 0x100000001b3u;
}

static bool parse_sample(const json_t *line, struct sample *s)
{
    json_int_t ns;
    int crank, call;
    *s = (struct sample){0};
    bool good = name_of(line, "func", slr_tune_func_number, 0, &s->func) &&
                name_of(line, "algo", slr_tune_algo_number, -1, &s->algo) &&
                name_of(line, "proto", slr_tune_proto_number, -1, &s->proto) &&
                int_of(line, "size_class", 0, 63, &s->size_class) && int_of(line, "registered", 0, 1, &s->registered) &&
                int_of(line, "nranks", 1, INT32_MAX, &s->nranks) && int_of(line, "nnodes", 1, INT32_MAX, &s->nnodes) &&
                int_of(line, "channels", 0, SLR_NCCL_MAX_CHANNELS, &s->channels) &&
                int_of(line, "candidates", 1, INT32_MAX, &s->candidates) && int_of(line, "call", 0, INT32_MAX, &call) &&
                int_of(line, "crank", 0, INT32_MAX, &crank) && log_number(line, "ns", 0, INT64_MAX, &ns);
    if (good) {
        s->comm = comm_id(log_text(line, "comm"));
        s->rank = rank_id(s->comm, crank);
        s->ns = (uint64_t)ns;
        s->call = (unsigned)call;
    }
    return good;
}

static void note_machine(struct samples *s, const json_t *line)
{
    int v;
    if (int_of(line, "nccl", 1, INT32_MAX, &v))
        snprintf(s->nccl, sizeof s->nccl, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    snprintf(s->device, sizeof s->device, "%s", log_text(line, "device"));
}

void samples_take(void *samples, const json_t *line)
{
    struct samples *s = samples;
    const char *event = log_text(line, "event");
    struct sample one;
    if (!strcmp(event, "explored")) {
        if (parse_sample(line, &one))
            vec_push(s, one);
        else
            s->bad_lines++;
    } else if (!strcmp(event, "explore")) {
        note_machine(s, line);
    } else if (!s->trouble[0] && (!strcmp(event, "tune_differs") || !strcmp(event, "tune_off"))) {
        snprintf(s->trouble, sizeof s->trouble, "%s: %s", event, log_text(line, "msg"));
    }
}
