/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one JSON value to a stream as it goes, so that a long one needs no memory. What reads JSON
 * uses Jansson, which not every tool can ask for; this needs nothing. Strings may hold any bytes:
 * what is no UTF-8 becomes U+FFFD.
 *
 *     struct json_writer w = {.to = stdout};
 *     json_put_open(&w, NULL, "{\n");
 *     json_put_text(&w, "name", "x");
 *     json_put_open(&w, "sizes", "[");
 *     json_put_number(&w, NULL, "%d", 7);
 *     json_put_close(&w);
 *     json_put_close(&w);
 */
#ifndef SLR_TOOLS_JSON_H
#define SLR_TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json_writer {
    FILE *to;
    bool compact;           /* no spaces */
    bool more;              /* a value stands before, in the same object or array */
    unsigned depth, indent; /* how many are open; of those, how many with lines */
    uint64_t array, lines;  /* of each that is open, by depth */
};

/* `key`: of a member of an object; NULL in an array and for the whole. `how`: "{" or "[", and a
 * newline behind it when each member gets a line of its own. At most 63 within each other. */
void json_put_open(struct json_writer *w, const char *key, const char *how);
/* The innermost that is open. Behind the last one comes a newline. */
void json_put_close(struct json_writer *w);

/* NULL: null. */
void json_put_text(struct json_writer *w, const char *key, const char *text);
void json_put_bool(struct json_writer *w, const char *key, bool value);
/* The format has to make a number of JSON, or null. */
void json_put_number(struct json_writer *w, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
