/* slipring-tables: prints the library's tables (settings, reasons) for people, documentation and the launcher. */
#ifndef SLR_TABLES_H
#define SLR_TABLES_H

#include <stdbool.h>
#include <stdio.h>

enum table { TABLE_SETTINGS, TABLE_REASONS };
enum form { FORM_TEXT, FORM_MARKDOWN, FORM_JSON, FORM_VALUES };

/* tables_print.c */
void print_table(FILE *out, enum table table, enum form form);
/* A whole documentation file: a line that says where it comes from, a title, the table. */
void print_document(FILE *out, enum table table);
/* The region of README.md, without its markers. */
void print_region(FILE *out);

/* tables_values.c: each setting with its value in the present environment; what is wrong there goes to stderr. */
void print_values(FILE *out);
/* "k=v" as --set takes it: prints the variable's assignment, or a message to stderr. 0 or 2. */
int check_assignment(const char *assignment);

/* tables_file.c: 0 when done or equal, else 1 with a message on stderr. With `check` nothing is written. */
int sync_document(enum table table, const char *path, bool check);
int sync_readme(const char *path, bool check);

#endif
