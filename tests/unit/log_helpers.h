/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the log: each test is a process of its own (Criterion), so settings and sink start afresh. */
#ifndef SLR_TEST_LOG_HELPERS_H
#define SLR_TEST_LOG_HELPERS_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A new empty folder; tests leave their files to remove_folder. */
static inline char *make_folder(void)
{
    static char folder[] = "/tmp/slr_log_XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    return folder;
}

static inline void remove_folder(const char *folder)
{
    char command[200];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    cr_assert_eq(system(command), 0);
}

/* The whole file as a string, which the caller frees; NULL when it does not exist. */
static inline char *slurp(const char *path)
{
    size_t size = 0;
    char *text = NULL;
    FILE *in = fopen(path, "r");
    if (!in)
        return NULL;
    if (getdelim(&text, &size, '\0', in) < 0) {
        free(text);
        text = strdup("");
    }
    fclose(in);
    return text;
}

static inline void use_file(const char *path, const char *level, const char *format)
{
    setenv("SLIPRING_LOG_FILE", path, 1);
    setenv("SLIPRING_LOG", level, 1);
    setenv("SLIPRING_LOG_FORMAT", format, 1);
}

/* Descriptor 2 goes to this file from now on. */
static inline void redirect_stderr(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    close(fd);
}

#endif
