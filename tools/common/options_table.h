/* SPDX-License-Identifier: Apache-2.0 */
/* `option_rows` of the table OPTIONS_FILE, for the one file of a program that parses them; and
 * `struct OPTIONS_STRUCT`, unless a header of the program has made it for its other files. */
#include "tools/common/options_struct.h"

static const struct option_row option_rows[] = {
#define COMMAND COMMAND_ROW
#define OPTION(...) OPTION_ROW(struct OPTIONS_STRUCT, __VA_ARGS__)
#define PARAGRAPH PARAGRAPH_ROW
#include OPTIONS_FILE
#undef COMMAND
#undef OPTION
#undef PARAGRAPH
    {.kind = OPTION_END},
};
