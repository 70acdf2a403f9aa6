/* SPDX-License-Identifier: Apache-2.0 */
/* What is said about options; for options.c. */
#ifndef SLR_TOOLS_OPTIONS_HELP_H
#define SLR_TOOLS_OPTIONS_HELP_H

#include "tools/common/options.h"

enum { OPTION_ROOM = 160 }; /* enough for all texts about one option */

static inline bool is_option(const struct option_row *row)
{
    return row->kind >= OPTION_FLAG;
}

/* "--rounds", without its value. Returns `buf`. */
const char *option_name(const struct option_row *row, char *buf, size_t size);

/* "a whole number from 1 on": what its value has to be. Returns `buf`. */
const char *option_expected(const struct option_row *row, char *buf, size_t size);

/* Tells that there is no such option, and which there are. Returns the exit status. */
int options_no_such(const struct option_row *rows, const char *word);

/* 0, or -1 when it could not be written. */
int options_help(const struct option_row *rows, FILE *to);

#endif
