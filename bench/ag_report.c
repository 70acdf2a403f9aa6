/* SPDX-License-Identifier: Apache-2.0 */
#include "ag_report.h"

#include "ag_shape.h"

#include <errno.h>
#include <string.h>

static const char *const loop_names[AG_LOOPS] = {"gemm", "gather", "sequence", "whole"};

static const char *status_name(int state)
{
    switch (state) {
    case AG_RUNNING:
        return "running";
    case AG_OK:
        return "ok";
    case AG_WRONG:
        return "wrong data";
    case AG_TIMEOUT:
        return "timeout";
    default:
        return "error";
    }
}

/* The slowest rank's time: what the job as a whole sees. */
static struct ag_times worst(const struct ag_shared *shared, enum ag_loop loop)
{
    struct ag_times result = {-1, -1};
    for (int i = 0; i < shared->ranks; i++) {
        const struct ag_times *times = &shared->records[i].times[loop];
        result.gpu_ms = times->gpu_ms > result.gpu_ms ? times->gpu_ms : result.gpu_ms;
        result.host_ms = times->host_ms > result.host_ms ? times->host_ms : result.host_ms;
    }
    return result;
}

/* No schedule can beat the slower of the two parts. */
static double ceiling(const struct ag_shared *shared)
{
    const double gemm = worst(shared, AG_LOOP_GEMM).gpu_ms, gather = worst(shared, AG_LOOP_GATHER).gpu_ms;
    return gemm > gather ? gemm : gather;
}

static int lanes(const struct ag_options *o)
{
    return (int)(o->streams > o->comms ? o->streams : o->comms);
}

/* Of one rank. Negative: nothing to state. */
static double tflops(const struct ag_options *o, double ms)
{
    return ms > 0 && !ag_gather_only(o) ? 2.0 * o->m * o->n * o->k * lanes(o) / ms * 1e-9 : -1;
}

/* Bytes that one rank receives per second of the gather. */
static double gather_gbs(const struct ag_options *o, const struct ag_shared *shared, double ms)
{
    const struct ag_shape s = ag_shape_of(o, shared->ranks);
    const double bytes = (double)(s.gathered - s.shard) * (double)s.element_bytes * lanes(o);
    return ms > 0 ? bytes / ms * 1e-6 : -1;
}

static void print_number(double value)
{
    if (value < 0)
        printf(" %10s", "-");
    else
        printf(" %10.*f", value < 10 ? 4 : value < 1000 ? 3 : 1, value);
}

static void print_times(const struct ag_options *o, const struct ag_times *times)
{
    for (int loop = 0; loop < AG_LOOPS; loop++)
        print_number(times[loop].gpu_ms);
    print_number(times[AG_LOOP_WHOLE].host_ms);
    print_number(tflops(o, times[AG_LOOP_WHOLE].gpu_ms));
}

static void print_check(const struct ag_options *o, const struct ag_record *record)
{
    const int state = record->state;
    if (state != AG_OK && state != AG_WRONG)
        printf("  %s", status_name(state));
    else if (o->check == AG_OFF)
        printf("  not checked");
    else if (record->wrong)
        printf("  %llu of %llu wrong", (unsigned long long)record->wrong, (unsigned long long)record->checked);
    else
        printf("  exact (%llu)", (unsigned long long)record->checked);
}

static void print_header(const struct ag_options *o, const struct ag_shared *shared, const char *how)
{
    const struct ag_shape s = ag_shape_of(o, shared->ranks);
    const char *device = shared->records[0].device_name;
    printf("ag_gemm%s%s: %d rank%s (%s) on %s\n", *o->label ? " " : "", o->label, shared->ranks,
           shared->ranks == 1 ? "" : "s", how, *device ? device : "no device");
    if (s.gemm) {
        printf("C(%ld x %ld) = A * B, k = %ld, form %s, ", s.m, s.n, s.k, ag_choice_name("form", o->form));
        printf("%s, ", ag_choice_name("dtype", o->dtype));
        printf("%s; ", ag_choice_name("api", o->api));
    } else {
        printf("gather only, %s; ", ag_choice_name("dtype", o->dtype));
    }
    printf("%zu bytes per rank%s, %ld iterations\n\n", s.shard * s.element_bytes, o->in_place ? " in place" : "",
           o->iters);
    printf("%5s %6s %10s %10s %10s %10s %10s %10s  %s\n", "rank", "device", "GEMM ms", "gather ms", "sequence", "whole",
           "whole host", "TFLOP/s", "check");
}

void ag_report_table(const struct ag_options *o, const struct ag_shared *shared, const char *how)
{
    struct ag_times all[AG_LOOPS];
    print_header(o, shared, how);
    for (int i = 0; i < shared->ranks; i++) {
        const struct ag_record *record = &shared->records[i];
        printf("%5d %6d", i, record->device);
        print_times(o, record->times);
        print_check(o, record);
        putchar('\n');
    }
    for (int loop = 0; loop < AG_LOOPS; loop++)
        all[loop] = worst(shared, (enum ag_loop)loop);
    printf("%5s %6s", "worst", "");
    print_times(o, all);
    putchar('\n');
    if (ceiling(shared) > 0)
        printf("\nno schedule can beat max(GEMM, gather) = %.4f ms; gather %.2f GB/s received per rank\n",
               ceiling(shared), gather_gbs(o, shared, all[AG_LOOP_GATHER].gpu_ms));
    for (int i = 0; i < shared->ranks; i++)
        if (shared->records[i].wrong)
            printf("rank %d: first wrong: %s\n", i, shared->records[i].first_wrong);
}

/* Negative: null. */
static void json_measured(struct json_writer *w, const char *name, double value)
{
    if (value < 0)
        json_put_text(w, name, NULL);
    else
        json_put_number(w, name, "%.6g", value);
}

static void json_times(struct json_writer *w, const struct ag_options *o, const struct ag_times *times)
{
    for (int loop = 0; loop < AG_LOOPS; loop++) {
        json_put_open(w, loop_names[loop], "{");
        json_measured(w, "gpu_ms", times[loop].gpu_ms);
        json_measured(w, "host_ms", times[loop].host_ms);
        json_put_close(w);
    }
    json_measured(w, "tflops", tflops(o, times[AG_LOOP_WHOLE].gpu_ms));
}

static void json_rank(struct json_writer *w, const struct ag_options *o, const struct ag_record *record, int rank)
{
    json_put_open(w, NULL, "{");
    json_put_number(w, "rank", "%d", rank);
    json_put_number(w, "device", "%d", record->device);
    json_put_text(w, "status", status_name(record->state));
    json_put_text(w, "error", record->error);
    json_put_number(w, "checked", "%llu", (unsigned long long)record->checked);
    json_put_number(w, "wrong", "%llu", (unsigned long long)record->wrong);
    json_put_text(w, "first_wrong", record->first_wrong);
    json_times(w, o, record->times);
    json_put_close(w);
}

static void json_check(struct json_writer *w, const struct ag_options *o, const struct ag_shared *shared)
{
    unsigned long long checked = 0, wrong = 0;
    for (int i = 0; i < shared->ranks; i++) {
        checked += shared->records[i].checked;
        wrong += shared->records[i].wrong;
    }
    json_put_open(w, "check", "{");
    json_put_text(w, "result", o->check == AG_OFF || !checked ? "not checked" : wrong ? "wrong" : "exact");
    json_put_number(w, "checked", "%llu", checked);
    json_put_number(w, "wrong", "%llu", wrong);
    json_put_close(w);
}

static void json_all(FILE *out, const struct ag_options *o, const struct ag_shared *shared, const char *how,
                     enum ag_status status)
{
    struct json_writer w = {.to = out};
    struct ag_times all[AG_LOOPS];
    for (int loop = 0; loop < AG_LOOPS; loop++)
        all[loop] = worst(shared, (enum ag_loop)loop);
    json_put_open(&w, NULL, "{\n");
    json_put_text(&w, "program", "ag_gemm");
    json_put_text(&w, "status", status_name((int)status));
    json_put_text(&w, "how", how);
    json_put_number(&w, "world", "%d", shared->ranks);
    json_put_text(&w, "device", shared->records[0].device_name);
    ag_options_json(o, &w);
    json_check(&w, o, shared);
    json_put_open(&w, "worst", "{");
    json_times(&w, o, all);
    json_put_close(&w);
    json_measured(&w, "ceiling_ms", ceiling(shared));
    json_measured(&w, "gather_gb_per_s", gather_gbs(o, shared, all[AG_LOOP_GATHER].gpu_ms));
    json_put_open(&w, "ranks", "[\n");
    for (int i = 0; i < shared->ranks; i++)
        json_rank(&w, o, &shared->records[i], i);
    json_put_close(&w);
    json_put_close(&w);
}

int ag_report_json(const struct ag_options *o, const struct ag_shared *shared, const char *how, enum ag_status status)
{
    if (!*o->json)
        return 0;
    FILE *out = fopen(o->json, "w");
    if (out)
        json_all(out, o, shared, how, status);
    if (!out || fclose(out) != 0) {
        fprintf(stderr, "ag_gemm: can not write %s: %s\n", o->json, strerror(errno));
        return -1;
    }
    return 0;
}

void ag_report_places(const struct ag_shared *shared)
{
    for (int i = 0; i < shared->ranks; i++) {
        const struct ag_record *record = &shared->records[i];
        fprintf(stderr, "ag_gemm: rank %d: %s in %s, iteration %ld%s%s\n", i, status_name(record->state),
                ag_phase_name(record->phase), (long)record->iteration, record->error[0] ? ": " : "", record->error);
    }
}
