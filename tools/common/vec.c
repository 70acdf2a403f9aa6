/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/vec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *tool_checked(void *memory)
{
    if (memory)
        return memory;
    fputs("slipring: out of memory\n", stderr);
    exit(3);
}

void *vec_more(void *at, size_t n, size_t *room, size_t size)
{
    if (n == *room) {
        *room = n ? n + n / 2 + 1 : 8;
        at = tool_checked(reallocarray(at, *room, size));
    }
    memset((char *)at + n * size, 0, size);
    return at;
}

void *tool_alloc(size_t n, size_t size)
{
    return tool_checked(calloc(n ? n : 1, size));
}

char *tool_copy(const char *text)
{
    return tool_checked(strdup(text));
}

char *tool_vtext(const char *fmt, va_list args)
{
    char *text = NULL;
    return tool_checked(vasprintf(&text, fmt, args) < 0 ? NULL : text);
}

char *tool_text(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = tool_vtext(fmt, args);
    va_end(args);
    return text;
}
