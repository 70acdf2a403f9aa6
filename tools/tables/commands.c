/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher's commands, and its --help text. */
#include <stdint.h>
#include <string.h>
#include "tools/tables/tables.h"
#include "tools/common/options_help.h"
#include "tools/common/utf8.h"

#define WIDTH 118

const struct option_row command_rows[] = {
#define COMMAND COMMAND_ROW
#define OPTION OPTION_ROW_SHOWN
#define PARAGRAPH PARAGRAPH_ROW
#include "tools/tables/commands.def"
    {.kind = OPTION_END},
};

const char *command_name(const struct option_row *command)
{
    return command->name + strlen("slipring ");
}

static int name_width(void)
{
    size_t most = 0;
    for (const struct option_row *row = command_rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_COMMAND && strlen(command_name(row)) > most)
            most = strlen(command_name(row));
    return (int)most;
}

void print_usage(FILE *out)
{
    const char *lead = "usage:";
    for (const struct option_row *row = command_rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_COMMAND) {
            fprintf(out, "%s %s %s\n", lead, row->name, row->value);
            lead = "      ";
        }
    fprintf(out, "%s slipring --version | --help\n\n", lead);
    int width = name_width();
    for (const struct option_row *row = command_rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_COMMAND) {
            fprintf(out, "%-*s ", width, command_name(row));
            utf8_wrap(out, row->help, (size_t)width + 1, (size_t)width + 1, WIDTH);
        }
    fputs("\nThe library is --lib, else $SLIPRING_LIB, else the one that was built or installed with this launcher.\n",
          out);
}

bool print_command_usage(FILE *out, const char *command)
{
    struct option_row rows[sizeof command_rows / sizeof *command_rows];
    size_t n = 0;
    for (const struct option_row *row = command_rows; row->kind != OPTION_END; row++)
        if (n ? row->kind != OPTION_COMMAND : row->kind == OPTION_COMMAND && !strcmp(command_name(row), command))
            rows[n++] = *row;
        else if (n)
            break;
    rows[n] = (struct option_row){.kind = OPTION_END};
    return n && options_help(rows, out) == 0;
}

void print_options(FILE *out)
{
    const char *command = "";
    char spelled[128];
    for (const struct option_row *row = command_rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_COMMAND)
            command = command_name(row);
        else if (row->kind != OPTION_PARAGRAPH)
            fprintf(out, "%s %s\n", command, option_spelled(row, spelled, sizeof spelled));
}
