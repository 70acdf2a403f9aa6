/* SPDX-License-Identifier: Apache-2.0 */
/* ag_gemm's command line. The struct, the parser, --help and the JSON record all derive from one
 * table, ag_options.def, in the form of tools/common/options.h. */
#ifndef AG_OPTIONS_H
#define AG_OPTIONS_H

#include "tools/common/json.h"

#define OPTIONS_FILE "bench/ag_options.def"
#define OPTIONS_STRUCT ag_options
#include "tools/common/options_struct.h"

/* Exit statuses, also the state of a rank that has ended. */
enum ag_status { AG_OK = 0, AG_WRONG = 1, AG_USAGE = 2, AG_ERROR = 3, AG_TIMEOUT = 4 };

/* The choices of CHOICE options, in the order of the table's text. */
enum ag_form { AG_BN, AG_AT, AG_AN };
enum ag_dtype { AG_BF16, AG_FP16, AG_FP32, AG_FP64, AG_INT8 };
enum ag_api { AG_GEMMEX, AG_SGEMM, AG_DGEMM, AG_HGEMM, AG_BATCHED, AG_LT, AG_LT_BIAS };
enum ag_interpose { AG_NOTHING, AG_MEMSET, AG_COPY, AG_WRITE, AG_ALLOC };
enum ag_check { AG_FULL, AG_SAMPLE, AG_OFF };

/* Fills `options`. Returns AG_OK, AG_USAGE after a message on stderr, or -1 when --help was
 * printed. */
int ag_options_parse(struct ag_options *options, int argc, char **argv);

/* The options as a member of an object. */
void ag_options_json(const struct ag_options *options, struct json_writer *to);

/* The name of choice `index` of a CHOICE option ("form", "dtype", ...). Valid until the thread's
 * next call. */
const char *ag_choice_name(const char *field, int index);

/* 1 when there is no GEMM. */
static inline int ag_gather_only(const struct ag_options *options)
{
    return options->bytes > 0 || options->dtype == AG_INT8;
}

#endif
