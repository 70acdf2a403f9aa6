/* SPDX-License-Identifier: Apache-2.0 */
/* How near any schedule of copies by copy engines and calls of cuBLAS can come to the longer of the
 * two, and what the copy of the own shard costs, which is a kernel. All ways take turns, with pauses
 * between, so that none of them gets a cooler GPU; medians of the rounds. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "floor.h"
#include "tools/common/json.h"

#define OPTIONS_FILE "bench/floor.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

enum { MOST_SHAPES = 32, MOST_ROUNDS = 99, LEAST_ITERATIONS = 8, GRACE = 60 };
/* Milliseconds of a measurement and of the pause behind it; what a GPU of today computes in one. */
static const double measured_ms = 12, pause_ms = 20, flop_per_ms = 7e11;

struct result {
    int rounds;
    double ms[MOST_WAYS][MOST_ROUNDS]; /* sorted in the end */
};

static struct {
    struct options options;
    struct shape shape[MOST_SHAPES];
    struct result result[MOST_SHAPES];
    int shapes;
    struct way way[MOST_WAYS];
    int ways;
    double end; /* no shape begins after that, nor a second round */
} my;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int iterations_of(const struct shape *s)
{
    const double ms = 2.0 * (double)s->m * (double)s->k * (double)s->n / flop_per_ms, fit = measured_ms / ms;
    return fit < LEAST_ITERATIONS ? LEAST_ITERATIONS : fit > MOST_ITERATIONS ? MOST_ITERATIONS : (int)fit;
}

static void one_round(const struct shape *s, struct result *r)
{
    const int iterations = iterations_of(s);
    for (int w = 0; w < my.ways; w++) {
        r->ms[w][r->rounds] = way_ms(&my.way[w], s, iterations);
        nanosleep(&(struct timespec){.tv_nsec = (long)(pause_ms * 1e6)}, NULL);
    }
    r->rounds++;
}

static void measure(const struct shape *s, struct result *r)
{
    printf("%zu,%zu,%zu: ", s->m, s->k, s->n);
    printf("%zu elements of %d schedules' results are exact;", data_check(my.way, my.ways, s), my.ways);
    data_random(s);
    do
        one_round(s, r);
    while (r->rounds < my.options.rounds && seconds() < my.end);
    printf(" %d rounds of %d iterations\n", r->rounds, iterations_of(s));
    for (int w = 0; w < my.ways; w++)
        qsort(r->ms[w], (size_t)r->rounds, sizeof *r->ms[w], ascending);
}

static void measure_all(void)
{
    for (int i = 0; i < my.shapes; i++) {
        const struct shape *s = &my.shape[i];
        if (seconds() < my.end)
            measure(s, &my.result[i]);
        else
            printf("%zu,%zu,%zu: left out, the time is up\n", s->m, s->k, s->n);
    }
}

static double median(const struct result *r, int way)
{
    return r->ms[way][r->rounds / 2];
}

/* The first two ways are those that stand alone. */
static double bound(const struct result *r)
{
    const double gemm = median(r, 0), copy = median(r, 1);
    return gemm > copy ? gemm : copy;
}

static int best(const struct result *r, enum own own)
{
    int found = -1;
    for (int w = 0; w < my.ways; w++)
        if (my.way[w].kind == SCHEDULE && my.way[w].own == own && (found < 0 || median(r, w) < median(r, found)))
            found = w;
    return found;
}

static void table_row(const struct shape *s, const struct result *r)
{
    char name[64];
    printf("| %zu, %zu, %zu | %.4f | %.4f | %.4f |", s->m, s->k, s->n, median(r, 0), median(r, 1), bound(r));
    for (enum own own = OWN_NONE; own < OWN_WAYS; own++) {
        const int w = best(r, own);
        printf(" %.4f (%s) | %.3f |", median(r, w), way_name(&my.way[w], name, sizeof name), median(r, w) / bound(r));
    }
    printf("\n");
}

static void table(void)
{
    printf("\nms of an iteration on the slower GPU; bound: the longer of GEMM and copy; then the best schedule by how "
           "the own\nshard gets to its place, and its time over the bound\n\n"
           "| M, K, N | GEMM | copy | bound |");
    for (enum own own = OWN_NONE; own < OWN_WAYS; own++)
        printf(" %s | / bound |", own_name[own]);
    printf("\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < my.shapes; i++)
        if (my.result[i].rounds)
            table_row(&my.shape[i], &my.result[i]);
}

static void json_row(struct json_writer *json, const struct result *r)
{
    json_put_number(json, "rounds", "%d", r->rounds);
    json_put_number(json, "bound_ms", "%.5f", bound(r));
    json_put_open(json, "ways", "[\n");
    for (int w = 0; w < my.ways; w++) {
        char name[64];
        json_put_open(json, NULL, "{");
        json_put_text(json, "way", way_name(&my.way[w], name, sizeof name));
        json_put_text(json, "own", my.way[w].kind == SCHEDULE ? own_name[my.way[w].own] : NULL);
        json_put_number(json, "ms", "%.5f", median(r, w));
        json_put_close(json);
    }
    json_put_close(json);
}

static void write_json(FILE *to)
{
    struct json_writer json = {.to = to};
    json_put_open(&json, NULL, "{\n");
    for (int i = 0; i < my.shapes; i++) {
        const struct shape *s = &my.shape[i];
        char name[80];
        if (!my.result[i].rounds)
            continue;
        snprintf(name, sizeof name, "%zu,%zu,%zu", s->m, s->k, s->n);
        json_put_open(&json, name, "{\n");
        json_row(&json, &my.result[i]);
        json_put_close(&json);
    }
    json_put_close(&json);
}

static void report(const char *path)
{
    table();
    if (!*path)
        return;
    FILE *to = fopen(path, "w");
    if (to)
        write_json(to);
    if (!to || fclose(to) != 0)
        DIE(USAGE, "can not write %s: %s", path, strerror(errno));
}

static bool parse_number(const char **text, char behind, size_t least, size_t *out)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    *out = strtoul(*text, &end, 10);
    if (*out < least || *out > INT_MAX || (behind && *end != behind))
        return false;
    *text = end + (behind != 0);
    return true;
}

/* cuBLAS may not compute bf16 at addresses that are no multiples of 16 bytes. */
static bool parse_shape(const char **text, struct shape *s)
{
    return parse_number(text, ',', 16, &s->m) && parse_number(text, ',', 8, &s->k) && parse_number(text, 0, 8, &s->n) &&
           s->m % 2 == 0 && s->k % 8 == 0 && s->n % 8 == 0;
}

static bool parse_shapes(const char *text)
{
    while (my.shapes < MOST_SHAPES && parse_shape(&text, &my.shape[my.shapes])) {
        my.shapes++;
        if (!*text)
            return true;
        if (*text++ != ':')
            return false;
    }
    return false;
}

/* A stream that is held ends here too. */
static void too_long(int number)
{
    static const char text[] = "floor: the time is up by far\n";
    (void)number;
    _exit(write(STDERR_FILENO, text, sizeof text - 1) < 0 ? FAILED : LATE);
}

int main(int argc, char **argv)
{
    struct options *o = &my.options;
    int rest = options_parse(option_rows, OPTIONS_FIRST, o, argc, argv);
    if (rest <= 0)
        return -rest;
    if (rest < argc)
        return options_wrong(option_rows, "unexpected argument: %s", argv[rest]);
    if (!parse_shapes(o->shapes))
        return options_wrong(option_rows,
                             "--shapes: up to %d of M,K,N, parted by colons; M from 16 on and even, K and N multiples "
                             "of 8; not %s",
                             MOST_SHAPES, o->shapes);
    my.end = seconds() + (double)o->limit;
    signal(SIGALRM, too_long);
    alarm((unsigned)(o->limit + GRACE));
    setvbuf(stdout, NULL, _IOLBF, 0);
    gpus_open(my.shape, my.shapes);
    my.ways = ways_list(my.way);
    measure_all();
    report(o->json);
    return 0;
}
