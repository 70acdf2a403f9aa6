/* SPDX-License-Identifier: Apache-2.0 */
#include "ag_options.h"

#include <string.h>
#include "tools/common/options_table.h"

static const char *shape_problem(const struct ag_options *o)
{
    static const int element_bytes[] = {[AG_BF16] = 2, [AG_FP16] = 2, [AG_FP32] = 4, [AG_FP64] = 8, [AG_INT8] = 1};
    if (o->bytes % element_bytes[o->dtype])
        return "--bytes must be a multiple of the element size";
    static const int api_dtype[] = {[AG_SGEMM] = AG_FP32, [AG_DGEMM] = AG_FP64, [AG_HGEMM] = AG_FP16};
    if (o->api >= AG_SGEMM && o->api <= AG_HGEMM && api_dtype[o->api] != o->dtype && !ag_gather_only(o))
        return "--api sgemm needs --dtype fp32, dgemm fp64, hgemm fp16";
    if (o->form == AG_AN && (o->api == AG_HGEMM || o->api >= AG_LT))
        return "--form an needs --api gemmex, sgemm, dgemm or batched";
    if (o->api >= AG_LT && o->ilp64)
        return "--ilp64: cublasLtMatmul has no such form";
    return NULL;
}

static const char *problem(const struct ag_options *o)
{
    if (o->threads && o->one_gpu)
        return "--one-gpu needs processes: NCCL_HOSTID belongs to a process";
    if (o->threads && o->kill_rank >= 0)
        return "--kill-rank needs processes";
    if (o->threads && *o->id_file)
        return "--threads and --id-file exclude each other";
    return shape_problem(o);
}

int ag_options_parse(struct ag_options *options, int argc, char **argv)
{
    *options = (struct ag_options){.dtype = -1};
    const int rest = options_parse(option_rows, OPTIONS_FIRST, options, argc, argv);
    if (rest <= 0)
        return rest == 0 ? -1 : AG_USAGE;
    if (rest < argc)
        return options_wrong(option_rows, "unexpected argument: %s", argv[rest]);
    if (options->dtype < 0)
        options->dtype = options->bytes ? AG_INT8 : AG_BF16;
    const char *wrong = problem(options);
    return wrong ? options_wrong(option_rows, "%s", wrong) : AG_OK;
}

const char *ag_choice_name(const char *field, int index)
{
    static _Thread_local char name[32];
    const struct option_row *row = option_rows;
    while (strcmp(row->name, field) != 0)
        row++;
    return option_choice(row, index, name, sizeof name);
}

void ag_options_json(const struct ag_options *options, struct json_writer *to)
{
    json_put_open(to, "options", "{");
    for (const struct option_row *row = option_rows; row->kind != OPTION_END; row++) {
        const void *field = (const char *)options + row->offset;
        if (row->kind == OPTION_WHOLE)
            json_put_number(to, row->name, "%ld", *(const long *)field);
        else if (row->kind == OPTION_REAL)
            json_put_number(to, row->name, "%.17g", *(const double *)field);
        else if (row->kind == OPTION_FLAG)
            json_put_bool(to, row->name, *(const bool *)field);
        else if (row->kind == OPTION_CHOICE)
            json_put_text(to, row->name, ag_choice_name(row->name, *(const int *)field));
        else if (row->kind == OPTION_TEXT)
            json_put_text(to, row->name, *(const char *const *)field);
    }
    json_put_close(to);
}
