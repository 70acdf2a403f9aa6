#include "ag_options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { LONG, REAL, FLAG, CHOICE, TEXT };

struct option {
    enum kind kind;
    const char *field, *fallback, *meta, *help;
    size_t offset;
};

static const struct option table[] = {
#define X(kind, field, fallback, meta, help) {kind, #field, fallback, meta, help, offsetof(struct ag_options, field)},
    AG_OPTIONS(X)
#undef X
};
enum { OPTION_COUNT = sizeof(table) / sizeof(table[0]) };

/* "id_file" is spelled --id-file. */
static int same_name(const char *field, const char *name, size_t length)
{
    if (strlen(field) != length)
        return 0;
    for (size_t i = 0; i < length; i++)
        if (name[i] != (field[i] == '_' ? '-' : field[i]))
            return 0;
    return 1;
}

static const struct option *find(const char *name, size_t length)
{
    for (int i = 0; i < OPTION_COUNT; i++)
        if (same_name(table[i].field, name, length))
            return &table[i];
    return NULL;
}

static int choice_index(const char *choices, const char *value)
{
    const size_t length = strlen(value);
    int index = 0;
    for (const char *at = choices;; index++) {
        const size_t span = strcspn(at, "|");
        if (span == length && strncmp(at, value, span) == 0)
            return index;
        if (at[span] == '\0')
            return -1;
        at += span + 1;
    }
}

static int set(struct ag_options *options, const struct option *option, const char *value)
{
    void *field = (char *)options + option->offset;
    char *end = NULL;
    errno = 0;
    switch (option->kind) {
    case LONG:
        *(long *)field = strtol(value, &end, 10);
        return *value && !*end && !errno;
    case REAL:
        *(double *)field = strtod(value, &end);
        return *value && !*end;
    case FLAG:
        *(int *)field = strcmp(value, "0") != 0;
        return 1;
    case CHOICE:
        *(int *)field = choice_index(option->meta, value);
        return *(int *)field >= 0;
    case TEXT:
        *(const char **)field = value;
        return 1;
    }
    return 0;
}

static void print_name(FILE *out, const char *field)
{
    for (; *field; field++)
        fputc(*field == '_' ? '-' : *field, out);
}

static void print_wrapped(const char *text)
{
    enum { INDENT = 8, WIDTH = 100 };
    int column = 0;
    while (*text) {
        const int length = (int)strcspn(text, " ");
        if (column && column + 1 + length <= WIDTH)
            column += printf(" %.*s", length, text);
        else
            column = printf("%s%*s%.*s", column ? "\n" : "", INDENT, "", length, text) - (column != 0);
        text += length + (text[length] == ' ');
    }
}

static void print_help(void)
{
    puts(
        "ag_gemm [OPTION]...\n\n"
        "Each rank owns a shard of a matrix, all-gathers it (ncclAllGather) and multiplies the gathered matrix with "
        "its\n"
        "weight (cuBLAS), again and again on one stream. Prints the time of the GEMM alone, of the gather alone, of "
        "both\n"
        "with a synchronisation between them (sequence), and of both back to back (whole), per rank and for the worst\n"
        "rank, and checks the results exactly: the data are small integers that every rank can compute.\n\n"
        "Exit status: 0 good, 1 wrong data, 2 usage, 3 CUDA/NCCL/cuBLAS error or a dead rank, 4 timeout.\n");
    for (int i = 0; i < OPTION_COUNT; i++) {
        fputs("  --", stdout);
        print_name(stdout, table[i].field);
        printf("%s%s\n", table[i].kind == FLAG ? "" : " ", table[i].meta);
        print_wrapped(table[i].help);
        if (table[i].kind != FLAG && *table[i].fallback)
            printf(" [%s]", table[i].fallback);
        putchar('\n');
    }
}

static const char *shape_problem(const struct ag_options *o)
{
    if (o->m < 1 || o->k < 1 || o->n < 1 || o->bytes < 0 || o->ld_pad < 0)
        return "--m, --k, --n must be positive, --bytes and --ld-pad not negative";
    static const int element_bytes[] = {[AG_BF16] = 2, [AG_FP16] = 2, [AG_FP32] = 4, [AG_FP64] = 8, [AG_INT8] = 1};
    if (o->bytes % element_bytes[o->dtype])
        return "--bytes must be a multiple of the element size";
    static const int api_dtype[] = {[AG_SGEMM] = AG_FP32, [AG_DGEMM] = AG_FP64, [AG_HGEMM] = AG_FP16};
    if (o->api >= AG_SGEMM && o->api <= AG_HGEMM && api_dtype[o->api] != o->dtype && !ag_gather_only(o))
        return "--api sgemm needs --dtype fp32, dgemm fp64, hgemm fp16";
    if (o->api >= AG_LT && o->ilp64)
        return "--ilp64: cublasLtMatmul has no such form";
    return NULL;
}

static const char *problem(const struct ag_options *o)
{
    if (o->ranks < 1 || o->ranks > 1024 || o->threads < 0 || o->threads > 1024)
        return "--ranks and --threads must be 1..1024";
    if (o->iters < 1 || o->warmup < 0 || o->check_rounds < 1 || o->burst < 1 || o->burst > 8)
        return "--iters and --check-rounds must be positive, --burst 1..8";
    if (o->streams < 1 || o->streams > 16 || o->comms < 1 || o->comms > 16)
        return "--streams and --comms must be 1..16";
    if (o->threads && o->one_gpu)
        return "--one-gpu needs processes: NCCL_HOSTID belongs to a process";
    if (o->threads && o->kill_rank >= 0)
        return "--kill-rank needs processes";
    if (o->threads && *o->id_file)
        return "--threads and --id-file exclude each other";
    if (o->timeout < 1 || o->grace < 0)
        return "--timeout must be positive, --grace not negative";
    return shape_problem(o);
}

static int usage(const char *what, const char *detail)
{
    fprintf(stderr, "ag_gemm: %s%s%s (see --help)\n", what, *detail ? ": " : "", detail);
    return AG_USAGE;
}

/* Takes "--name value" or "--name=value" at argv[*i] and moves *i to the last argument used. */
static int parse_one(struct ag_options *options, int argc, char **argv, int *i, const struct option **found)
{
    const char *name = argv[*i];
    if (strncmp(name, "--", 2) != 0)
        return usage("unexpected argument", name);
    const size_t length = strcspn(name + 2, "=");
    const struct option *option = *found = find(name + 2, length);
    if (!option)
        return usage("unknown option", name);
    const char *value = name[2 + length] ? name + 3 + length : option->kind == FLAG ? "1" : argv[++*i];
    if (*i >= argc)
        return usage("option needs a value", name);
    if (!set(options, option, value))
        return usage(name, option->kind == CHOICE ? option->meta : "not understood");
    return AG_OK;
}

int ag_options_parse(struct ag_options *options, int argc, char **argv)
{
    int has_dtype = 0;
    for (int i = 0; i < OPTION_COUNT; i++)
        set(options, &table[i], table[i].fallback);
    for (int i = 1; i < argc; i++) {
        const struct option *option;
        if (strcmp(argv[i], "--help") == 0)
            return print_help(), -1;
        if (parse_one(options, argc, argv, &i, &option) != AG_OK)
            return AG_USAGE;
        has_dtype |= option->offset == offsetof(struct ag_options, dtype);
    }
    if (options->bytes && !has_dtype)
        options->dtype = AG_INT8;
    const char *wrong = problem(options);
    return wrong ? usage(wrong, "") : AG_OK;
}

const char *ag_choice_name(const char *field, int index)
{
    static _Thread_local char name[32];
    const struct option *option = NULL;
    for (int i = 0; i < OPTION_COUNT; i++)
        if (strcmp(table[i].field, field) == 0)
            option = &table[i];
    const char *at = option ? option->meta : "?";
    while (index-- > 0 && strchr(at, '|'))
        at = strchr(at, '|') + 1;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, "|"), at);
    return name;
}

void ag_json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(out, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, out);
    }
    fputc('"', out);
}

void ag_options_json(const struct ag_options *options, FILE *out)
{
    for (int i = 0; i < OPTION_COUNT; i++) {
        const void *field = (const char *)options + table[i].offset;
        fprintf(out, "%s\"%s\": ", i ? ", " : "", table[i].field);
        switch (table[i].kind) {
        case LONG:
            fprintf(out, "%ld", *(const long *)field);
            break;
        case REAL:
            fprintf(out, "%.17g", *(const double *)field);
            break;
        case FLAG:
            fputs(*(const int *)field ? "true" : "false", out);
            break;
        case CHOICE:
            ag_json_string(out, ag_choice_name(table[i].field, *(const int *)field));
            break;
        case TEXT:
            ag_json_string(out, *(const char *const *)field);
            break;
        }
    }
}
