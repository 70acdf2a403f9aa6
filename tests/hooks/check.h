/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for programs that run under a preload: no framework, so nothing else is loaded. */
#ifndef TESTS_PRELOAD_CHECK_H
#define TESTS_PRELOAD_CHECK_H

#include <stdio.h>
#include <stdlib.h>

static inline void check_failed(const char *file, int line, const char *what, const char *about)
{
    fprintf(stderr, "%s:%d: %s (%s)\n", file, line, what, about);
    exit(1);
}

#define CHECK_FOR(about, cond) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, #cond, about))
#define CHECK(cond) CHECK_FOR("", cond)

#endif
