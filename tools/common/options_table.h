/* SPDX-License-Identifier: Apache-2.0 */
/* Makes of the table OPTIONS_FILE, a .def file, `struct OPTIONS_STRUCT` with its fields, and
 * `option_rows`. The file that includes this defines both names before. See
 * tools/common/options.h. */
#include "tools/common/options.h"

struct OPTIONS_STRUCT {
#define COMMAND(...)
#define OPTION OPTION_FIELD
#define PARAGRAPH(...)
#include OPTIONS_FILE
#undef COMMAND
#undef OPTION
#undef PARAGRAPH
};

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
