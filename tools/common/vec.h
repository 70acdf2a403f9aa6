/* SPDX-License-Identifier: Apache-2.0 */
/* Growable arrays and memory for the tools. Out of memory ends the tool with a message and status
 * 3: it has nothing that it could still tell. */
#ifndef SLR_TOOLS_VEC_H
#define SLR_TOOLS_VEC_H

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

/* An array that grows. All zero is empty; the elements belong to it. */
#define VEC(type) struct VEC_BODY(type)

#define VEC_TYPE(name, type) struct name VEC_BODY(type)
#define VEC_BODY(type)                                                                                                 \
    {                                                                                                                  \
        type *at;                                                                                                      \
        size_t n, room;                                                                                                \
    }

/* A new element at the end, all zero. Pointers to elements do not survive it. */
#define vec_add(v) ((v)->at = vec_more((v)->at, (v)->n, &(v)->room, sizeof *(v)->at), &(v)->at[(v)->n++])
#define vec_push(v, value) (*vec_add(v) = (value))
#define vec_free(v) (free((v)->at), (v)->at = NULL, (v)->n = (v)->room = 0)

void *vec_more(void *at, size_t n, size_t *room, size_t size);

/* `memory`, never NULL. */
void *tool_checked(void *memory);
/* calloc, never NULL. */
void *tool_alloc(size_t n, size_t size);
char *tool_copy(const char *text);
/* A new text; the caller frees it. */
char *tool_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *tool_vtext(const char *fmt, va_list args);

#endif
