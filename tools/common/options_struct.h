/* SPDX-License-Identifier: Apache-2.0 */
/* Makes of the table OPTIONS_FILE, a .def file, `struct OPTIONS_STRUCT` with its fields. The file
 * that includes this defines both names before, and they stay. See tools/common/options.h. */
#ifndef SLR_TOOLS_OPTIONS_STRUCT_H
#define SLR_TOOLS_OPTIONS_STRUCT_H

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

#endif
