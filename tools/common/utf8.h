/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, strictly: overlong forms, surrogates and what lies above U+10FFFF are no characters. Texts
 * end with a zero. */
#ifndef SLR_TOOLS_UTF8_H
#define SLR_TOOLS_UTF8_H

#include <stddef.h>
#include <stdio.h>

/* Bytes of the character at `at`, which is not the end of the text; 0: it is none. */
unsigned utf8_length(const char *at);

/* The same, and 0 for control characters too: nothing from outside may steer a terminal. */
unsigned utf8_printable(const char *at);

/* Bytes to the next character, whatever they are; 0 at the end of the text. */
size_t utf8_step(const char *at);

/* How many characters a text has; 0x80..0xbf are not counted, as parts of others. */
size_t utf8_count(const char *text);

/* Bytes of the first `count` characters, or of all. */
size_t utf8_prefix(const char *text, size_t count);

/* The words of `text`, from `column` on, in lines of `width` characters; further lines begin at
 * `indent`. A word that fits no line stays whole. Ends the last line. */
void utf8_wrap(FILE *to, const char *text, size_t indent, size_t column, size_t width);

#endif
