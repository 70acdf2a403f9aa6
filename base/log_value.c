/* SPDX-License-Identifier: Apache-2.0 */
/* A printf for log values: without malloc, locale (a decimal comma would break JSON) or field
 * widths. */
#include "base/log_internal.h"
#include <stdint.h>
#include <string.h>

struct conv {
    int precision; /* -1: not given */
    int longs;     /* 0 int, 1 long (size_t, intmax_t and ptrdiff_t are as wide), 2 long long */
    char letter;
};
_Static_assert(sizeof(size_t) == sizeof(long), "%zu is read as %lu");

static void put(struct slr_value *v, const char *text, size_t len)
{
    size_t room = sizeof v->text - v->len;
    if (len > room) {
        len = room;
        v->cut = true;
    }
    memcpy(v->text + v->len, text, len);
    v->len += len;
}

static void put_unsigned(struct slr_value *v, uint64_t n, unsigned base, unsigned digits)
{
    char buf[24];
    char *at = buf + sizeof buf;
    do {
        *--at = "0123456789abcdef"[n % base];
        n /= base;
    } while (n > 0 || buf + sizeof buf - at < (ptrdiff_t)digits);
    put(v, at, (size_t)(buf + sizeof buf - at));
}

static void put_signed(struct slr_value *v, int64_t n)
{
    if (n < 0)
        put(v, "-", 1);
    /* INT64_MIN has no positive counterpart of its own type. */
    put_unsigned(v, n < 0 ? 0 - (uint64_t)n : (uint64_t)n, 10, 1);
}

/* Fixed point up to 1e18, one digit and an exponent above. */
static void put_double(struct slr_value *v, double x, unsigned precision)
{
    uint64_t scale = 1;
    unsigned exponent = 0;
    if (x != x || x - x != 0) {
        put(v, x != x ? "nan" : x < 0 ? "-inf" : "inf", x < 0 ? 4 : 3);
        v->number = false;
        return;
    }
    if (x < 0)
        put(v, "-", 1);
    x = x < 0 ? -x : x;
    precision = precision > 9 ? 9 : precision;
    for (unsigned i = 0; i < precision; i++)
        scale *= 10;
    for (bool large = x * (double)scale >= 1e18; large && x >= 10; exponent++)
        x /= 10;
    uint64_t fixed = (uint64_t)(x * (double)scale + 0.5);
    put_unsigned(v, fixed / scale, 10, 1);
    if (precision > 0) {
        put(v, ".", 1);
        put_unsigned(v, fixed % scale, 10, precision);
    }
    if (exponent > 0) {
        put(v, "e", 1);
        put_unsigned(v, exponent, 10, 1);
    }
}

static const char *parse_precision(const char *at, struct conv *c, struct slr_args *args)
{
    c->precision = 0;
    if (*at == '*') {
        c->precision = va_arg(args->list, int);
        return at + 1;
    }
    for (; *at >= '0' && *at <= '9'; at++)
        if (c->precision < SLR_LOG_LINE)
            c->precision = c->precision * 10 + (*at - '0');
    return at;
}

/* `at` is behind the '%'. Flags and widths are skipped: a line is not a table. */
static const char *parse_conv(const char *at, struct conv *c, struct slr_args *args)
{
    *c = (struct conv){.precision = -1};
    for (; *at && strchr("-+ #0123456789*", *at); at++)
        if (*at == '*')
            (void)va_arg(args->list, int);
    if (*at == '.')
        at = parse_precision(at + 1, c, args);
    for (; *at && strchr("hlzjt", *at); at++)
        c->longs += *at != 'h';
    c->letter = *at;
    return *at ? at + 1 : at;
}

static uint64_t next_unsigned(const struct conv *c, struct slr_args *args)
{
    if (c->longs == 0)
        return va_arg(args->list, unsigned);
    return c->longs == 1 ? va_arg(args->list, unsigned long) : va_arg(args->list, unsigned long long);
}

static int64_t next_signed(const struct conv *c, struct slr_args *args)
{
    if (c->longs == 0)
        return va_arg(args->list, int);
    return c->longs == 1 ? va_arg(args->list, long) : va_arg(args->list, long long);
}

static void put_string(struct slr_value *v, const char *text, int precision)
{
    size_t most = precision >= 0 ? (size_t)precision : SLR_LOG_LINE + 1;
    if (!text)
        text = "(null)";
    put(v, text, strnlen(text, most));
}

/* False: not a conversion that is known; the arguments behind it can not be read either. */
static bool put_conv(struct slr_value *v, const struct conv *c, struct slr_args *args)
{
    char letter;
    switch (c->letter) {
    case 'd':
    case 'i':
        put_signed(v, next_signed(c, args));
        return true;
    case 'u':
        put_unsigned(v, next_unsigned(c, args), 10, 1);
        return true;
    case 'x':
    case 'X':
        put_unsigned(v, next_unsigned(c, args), 16, 1);
        return true;
    case 'p':
        put(v, "0x", 2);
        put_unsigned(v, (uintptr_t)va_arg(args->list, void *), 16, 1);
        return true;
    case 's':
        put_string(v, va_arg(args->list, const char *), c->precision);
        return true;
    case 'c':
        letter = (char)va_arg(args->list, int);
        put(v, &letter, 1);
        return true;
    case 'f':
    case 'g':
    case 'e':
        put_double(v, va_arg(args->list, double), c->precision < 0 ? 6 : (unsigned)c->precision);
        return true;
    case '%':
        put(v, "%", 1);
        return true;
    default:
        return false;
    }
}

void slr_value_render(struct slr_value *v, const char **fmt, bool prose, struct slr_args *args)
{
    const char *at = *fmt;
    unsigned parts = 0;
    v->len = 0;
    v->cut = false;
    v->number = true; /* until something else is seen */
    for (; *at && (prose || *at != ' '); parts++) {
        struct conv c;
        if (*at != '%') {
            put(v, at++, 1);
            v->number = false;
            continue;
        }
        at = parse_conv(at + 1, &c, args);
        if (!put_conv(v, &c, args)) {
            put(v, "?", 1);
            /* What follows can not be read: the arguments are out of step. */
            at += strlen(at);
            c.letter = '\0';
        }
        if (!c.letter || !strchr("diufge", c.letter))
            v->number = false;
    }
    if (parts != 1)
        v->number = false;
    *fmt = at;
}
