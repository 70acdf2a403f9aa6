/* The launcher's commands, and its --help text. */
#include "LD_PRELOAD/tables.h"
#include <string.h>

#define WIDTH 118

const struct command_row command_rows[] = {
#define C(name, synopsis, help) {ROW_COMMAND, #name, synopsis, help},
#define O(name, option, text) {ROW_OPTION, #name, option, text},
#define P(name, text) {ROW_PARAGRAPH, #name, "", text},
#include "LD_PRELOAD/commands.def"
#undef C
#undef O
#undef P
    {ROW_END, "", "", ""},
};

static int name_width(void)
{
    size_t most = 0;
    for (const struct command_row *row = command_rows; row->kind != ROW_END; row++)
        most = strlen(row->name) > most ? strlen(row->name) : most;
    return (int)most;
}

/* `text` in lines of at most WIDTH characters, all but the first indented; the first begins at `indent` already. */
static void put_wrapped(FILE *out, const char *text, int indent)
{
    int at = indent;
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (at > indent && at + 1 + word > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            putc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", word, text);
        at += word;
        text += word;
        text += strspn(text, " ");
    }
    putc('\n', out);
}

void print_usage(FILE *out)
{
    const char *lead = "usage:";
    for (const struct command_row *row = command_rows; row->kind != ROW_END; row++)
        if (row->kind == ROW_COMMAND) {
            fprintf(out, "%s slipring %s %s\n", lead, row->name, row->what);
            lead = "      ";
        }
    fprintf(out, "%s slipring --version | --help\n\n", lead);
    int width = name_width();
    for (const struct command_row *row = command_rows; row->kind != ROW_END; row++)
        if (row->kind == ROW_COMMAND) {
            fprintf(out, "%-*s ", width, row->name);
            put_wrapped(out, row->text, width + 1);
        }
    fputs("\nThe library is --lib, else $SLIPRING_LIB, else the one that was built or installed with this launcher.\n",
          out);
}

void print_options(FILE *out)
{
    for (const struct command_row *row = command_rows; row->kind != ROW_END; row++)
        if (row->kind == ROW_OPTION)
            fprintf(out, "%s %s\n", row->name, row->what);
}
