/* SPDX-License-Identifier: Apache-2.0 */
/* slipring-tables: prints the library's tables (settings, reasons) for people, documentation and
 * the launcher. */
#ifndef SLR_TOOLS_TABLES_H
#define SLR_TOOLS_TABLES_H

#include <stdbool.h>
#include <stdio.h>
#include "base/settings.h"
#include "tools/common/options.h"

enum table { TABLE_SETTINGS, TABLE_REASONS };
enum form { FORM_TEXT, FORM_MARKDOWN, FORM_JSON, FORM_VALUES, FORM_ALL_VALUES };

/* print.c: settings group by group, the basic ones first. FORM_VALUES leaves out expert settings that have their
 * defaults. FORM_JSON has the values of settings in the present environment as well. */
void print_table(FILE *out, enum table table, enum form form);
/* A whole documentation file: a line that says where it comes from, a title, the table. */
void print_document(FILE *out, enum table table);
const char *group_title(enum slr_setting_group group);
/* The counters, as a table in Markdown. */
void print_counters(FILE *out);

/* commands.c: commands.def, command by command, ended by OPTION_END. */
extern const struct option_row command_rows[];
/* Behind "slipring". */
const char *command_name(const struct option_row *command);
/* The text of the launcher's --help. */
void print_usage(FILE *out);
/* One command's --help. False: there is no such command. */
bool print_command_usage(FILE *out, const char *command);
/* "COMMAND OPTION" for each option that the manual explains. */
void print_options(FILE *out);

/* completion.c: what completes all that in bash, zsh or fish. False: there is no such shell. */
bool print_completion(FILE *out, const char *shell);

/* man.c: the manual page of a template, in which a line that is only @settings@, @reasons@,
 * @counters@, @commands@ or @functions@ becomes that table, and @version@ and @date@ the values. 0,
 * or 1 with a message on stderr. */
int print_page(FILE *out, const char *template, const char *date);

/* values.c: the settings of the present environment, and of the files that it stands for. */
struct values {
    struct slr_settings now;
    const char *refused[SLR_S_COUNT]; /* a value that is not accepted: the default is used; NULL: none */
};
/* What is wrong there goes to stderr. */
void values_read(struct values *v);
/* NAME=VALUE of each that a file gives, for the launcher; what is wrong is the library's to tell. */
void print_from_files(FILE *out);
/* A setting's value as a user would write it. */
void put_value(FILE *out, const struct slr_settings *s, int setting);
/* "k=v" as --set takes it: prints the variable's assignment, or a message to stderr. 0 or 2. */
int check_assignment(const char *assignment);

/* file.c: 0 when done or equal, else 1 with a message on stderr. With `check` nothing is
 * written. */
int sync_document(enum table table, const char *path, bool check);
/* A region of a file that is otherwise written by hand. */
enum region { REGION_LAUNCHER, REGION_COUNTERS, REGION_COUNT };
int sync_region(enum region region, const char *path, bool check);

#endif
