/* SPDX-License-Identifier: Apache-2.0 */
/* Builds one line, as text or as a JSON object, in a buffer of fixed size. Escapes and UTF-8
 * sequences go in whole or not at all, so a line that was cut short is still valid. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "base/settings.h"
#include "base/wait.h"

/* ---- values: a printf without malloc, locale (a decimal comma would break JSON) or field widths ---- */

struct conv {
    int precision; /* -1: not given */
    int longs;     /* 0 int, 1 long (size_t, intmax_t and ptrdiff_t are as wide), 2 long long */
    char letter;
};
_Static_assert(sizeof(size_t) == sizeof(long), "%zu is read as %lu");

struct slr_value {
    char text[SLR_LOG_LINE];
    size_t len;
    bool number; /* one %d, %u or %f and nothing else: a JSON number */
    bool cut;    /* it did not fit */
};

static void value_put(struct slr_value *v, const char *text, size_t len)
{
    size_t room = sizeof v->text - v->len;
    if (len > room) {
        len = room;
        v->cut = true;
    }
    memcpy(v->text + v->len, text, len);
    v->len += len;
}

/* Whole numbers only: of these libc's printf needs neither memory nor a locale. */
__attribute__((format(printf, 2, 3))) static void value_whole(struct slr_value *v, const char *fmt, ...)
{
    char buf[32];
    va_list list;
    va_start(list, fmt);
    value_put(v, buf, (size_t)vsnprintf(buf, sizeof buf, fmt, list));
    va_end(list);
}

/* Fixed point up to 1e18, one digit and an exponent above. */
static void value_double(struct slr_value *v, double x, unsigned precision)
{
    uint64_t scale = 1;
    unsigned exponent = 0;
    if (x != x || x - x != 0) {
        value_put(v, x != x ? "nan" : x < 0 ? "-inf" : "inf", x < 0 ? 4 : 3);
        v->number = false;
        return;
    }
    if (x < 0)
        value_put(v, "-", 1);
    x = x < 0 ? -x : x;
    precision = precision > 9 ? 9 : precision;
    for (unsigned i = 0; i < precision; i++)
        scale *= 10;
    for (bool large = x * (double)scale >= 1e18; large && x >= 10; exponent++)
        x /= 10;
    uint64_t fixed = (uint64_t)(x * (double)scale + 0.5);
    value_whole(v, "%" PRIu64, fixed / scale);
    if (precision > 0)
        value_whole(v, ".%0*" PRIu64, (int)precision, fixed % scale);
    if (exponent > 0)
        value_whole(v, "e%u", exponent);
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

static void value_string(struct slr_value *v, const char *text, int precision)
{
    size_t most = precision >= 0 ? (size_t)precision : SLR_LOG_LINE + 1;
    if (!text)
        text = "(null)";
    value_put(v, text, strnlen(text, most));
}

/* False: not a conversion that is known; the arguments behind it can not be read either. */
static bool put_conv(struct slr_value *v, const struct conv *c, struct slr_args *args)
{
    char letter;
    switch (c->letter) {
    case 'd':
    case 'i':
        value_whole(v, "%" PRId64, next_signed(c, args));
        return true;
    case 'u':
        value_whole(v, "%" PRIu64, next_unsigned(c, args));
        return true;
    case 'x':
    case 'X':
        value_whole(v, "%" PRIx64, next_unsigned(c, args));
        return true;
    case 'p':
        value_whole(v, "0x%" PRIxPTR, (uintptr_t)va_arg(args->list, void *));
        return true;
    case 's':
        value_string(v, va_arg(args->list, const char *), c->precision);
        return true;
    case 'c':
        letter = (char)va_arg(args->list, int);
        value_put(v, &letter, 1);
        return true;
    case 'f':
    case 'g':
    case 'e':
        value_double(v, va_arg(args->list, double), c->precision < 0 ? 6 : (unsigned)c->precision);
        return true;
    case '%':
        value_put(v, "%", 1);
        return true;
    default:
        return false;
    }
}

/* Renders the value that starts at *fmt, up to the next space (`prose`: up to the end), and moves *fmt
 * behind it. */
static void render_value(struct slr_value *v, const char **fmt, bool prose, struct slr_args *args)
{
    const char *at = *fmt;
    unsigned parts = 0;
    v->len = 0;
    v->cut = false;
    v->number = true; /* until something else is seen */
    for (; *at && (prose || *at != ' '); parts++) {
        struct conv c;
        if (*at != '%') {
            value_put(v, at++, 1);
            v->number = false;
            continue;
        }
        at = parse_conv(at + 1, &c, args);
        if (!put_conv(v, &c, args)) {
            value_put(v, "?", 1);
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

/* ---- who writes ---- */

static _Atomic int first_rank = -1;

int slr_log_rank(void)
{
    return atomic_load_explicit(&first_rank, memory_order_relaxed);
}

void slr_log_set_rank(int rank)
{
    int none = -1;
    if (rank >= 0)
        atomic_compare_exchange_strong(&first_rank, &none, rank);
}

/* Job starters tell each process its rank long before there is a communicator. */
const char *slr_log_starter_rank(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        size_t len = value ? strspn(value, "0123456789") : 0;
        if (len > 0 && value[len] == '\0')
            return value;
    }
    return NULL;
}

const char *slr_log_host(char *buf, size_t size)
{
    struct utsname name;
    const char *host = uname(&name) == 0 && name.nodename[0] ? name.nodename : "localhost";
    size_t len = strlen(host);
    len = len < size ? len : size - 1;
    memcpy(buf, host, len);
    buf[len] = '\0';
    return buf;
}

/* ---- lines ---- */

struct line {
    char *start, *at, *end; /* end leaves room for what finish() writes */
    bool json, cut;
};

static const char json_cut[] = ",\"truncated\":true";
static const char text_cut[] = "...";

static const char *const level_names[] = {"off", "error", "warn", "info", "debug"};

/* Header keys of the JSON form; a field of the same name gets a prefix, since a key twice would
 * hide one. */
static const char *const header_keys[] = {"ts", "wall", "host", "pid", "rank", "level", "event"};

static bool put(struct line *l, const char *text, size_t len)
{
    if (len > (size_t)(l->end - l->at)) {
        l->cut = true;
        return false;
    }
    memcpy(l->at, text, len);
    l->at += len;
    return true;
}

static bool puts_(struct line *l, const char *text)
{
    return put(l, text, strlen(text));
}

/* Texts and whole numbers, all of it or nothing. */
__attribute__((format(printf, 2, 3))) static bool put_form(struct line *l, const char *fmt, ...)
{
    char buf[512];
    va_list list;
    va_start(list, fmt);
    const size_t len = (size_t)vsnprintf(buf, sizeof buf, fmt, list);
    va_end(list);
    return put(l, buf, len < sizeof buf ? len : sizeof buf - 1);
}

/* Length of the UTF-8 sequence at `s`; 0 when it is none (overlong forms, surrogates and values
 * above U+10FFFF are none). */
static size_t utf8_len(const unsigned char *s, size_t len)
{
    uint32_t low[] = {0, 0, 0x80, 0x800, 0x10000}, code;
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (n < 2 || n > len)
        return n > len ? 0 : n;
    code = s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3fu);
    }
    return code < low[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : n;
}

/* One character of a quoted value; returns how many bytes of `s` it took, 0 when the line is full.
 */
static size_t put_quoted(struct line *l, const char *s, size_t len)
{
    unsigned char c = (unsigned char)*s;
    size_t n = utf8_len((const unsigned char *)s, len);
    bool done;
    if (c == '"' || c == '\\')
        done = put(l, (char[]){'\\', (char)c}, 2);
    else if (c == '\n')
        done = put(l, "\\n", 2);
    else if (c == '\t')
        done = put(l, "\\t", 2);
    else if (c < 0x20 || c == 0x7f)
        done = put_form(l, l->json ? "\\u00%02x" : "\\x%02x", c);
    else if (n == 0) /* JSON is UTF-8: the replacement character stands for a byte that is not */
        done = l->json ? puts_(l, "\\ufffd") : put_form(l, "\\x%02x", c);
    else
        done = put(l, s, n);
    return done ? (n ? n : 1) : 0;
}

static void put_string(struct line *l, const char *s, size_t len)
{
    if (l->end - l->at < 2) {
        l->cut = true;
        return;
    }
    *l->at++ = '"';
    l->end--; /* kept for the closing quote */
    for (size_t took; len > 0; s += took, len -= took)
        if ((took = put_quoted(l, s, len)) == 0)
            break;
    l->end++;
    *l->at++ = '"';
}

static bool is_plain(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)s[i] <= ' ' || (unsigned char)s[i] >= 0x7f || strchr("\"\\=", s[i]))
            return false;
    return len > 0;
}

static void put_value(struct line *l, const struct slr_value *v)
{
    if (l->json ? v->number : is_plain(v->text, v->len))
        put(l, v->text, v->len);
    else
        put_string(l, v->text, v->len);
    l->cut |= v->cut;
}

static bool is_header_key(const char *key, size_t len)
{
    for (size_t i = 0; i < sizeof header_keys / sizeof *header_keys; i++)
        if (strlen(header_keys[i]) == len && memcmp(header_keys[i], key, len) == 0)
            return true;
    return false;
}

static void put_key(struct line *l, const char *key, size_t len)
{
    puts_(l, l->json ? ",\"" : " ");
    if (l->json && is_header_key(key, len))
        puts_(l, "event_");
    put(l, key, len);
    puts_(l, l->json ? "\":" : "=");
}

/* A field that does not fit is left out whole, unless it is a string, which is cut. */
static void put_field(struct line *l, const char *key, size_t len, const struct slr_value *v)
{
    char *before = l->at;
    put_key(l, key, len);
    char *value = l->at;
    if (!l->cut)
        put_value(l, v);
    if (l->cut && l->at - value < 3)
        l->at = before;
}

static void put_fields(struct line *l, const char *fmt, struct slr_args *args)
{
    while (*fmt && !l->cut) {
        struct slr_value v;
        const char *key = fmt;
        size_t len = strspn(fmt, "abcdefghijklmnopqrstuvwxyz_0123456789");
        bool prose = fmt[len] != '=' || (len == 3 && memcmp(key, "msg", 3) == 0);
        if (fmt[len] == '=')
            fmt += len + 1;
        else /* not key=: all the rest is prose */
            key = "msg", len = 3;
        render_value(&v, &fmt, prose, args);
        put_field(l, key, len, &v);
        while (*fmt == ' ')
            fmt++;
    }
}

static void put_json_header(struct line *l, const char *host, const char *level, const char *event)
{
    struct timespec wall;
    const uint64_t now = slr_now_ns();
    clock_gettime(CLOCK_REALTIME, &wall);
    put_form(l, "{\"ts\":%" PRIu64 ",\"wall\":%lld.%06ld,\"host\":", now, (long long)wall.tv_sec, wall.tv_nsec / 1000);
    put_string(l, host, strlen(host));
    put_form(l, ",\"pid\":%d,\"rank\":%d,\"level\":\"%s\",\"event\":", (int)getpid(), slr_log_rank(), level);
    put_string(l, event, strlen(event));
}

static void put_text_header(struct line *l, const char *host, const char *level, const char *event)
{
    put_form(l, "slipring[%s:%d", host, (int)getpid());
    if (slr_log_rank() >= 0)
        put_form(l, " rank %d", slr_log_rank());
    put_form(l, "] %s %s", level, event);
}

static size_t finish(struct line *l)
{
    const char *tail = l->json ? "}\n" : "\n";
    l->end = l->start + SLR_LOG_LINE;
    if (l->cut)
        puts_(l, l->json ? json_cut : text_cut);
    puts_(l, tail);
    return (size_t)(l->at - l->start);
}

size_t slr_line_format(char *buf, bool json, enum slr_log_level level, const char *event, const char *fmt,
                       struct slr_args *args)
{
    char host[128];
    struct line l = {buf, buf, buf + SLR_LOG_LINE, json, false};
    /* Room for the mark of a cut line, and "}\n" or "\n" in place of its final NUL. */
    l.end -= l.json ? sizeof json_cut + 1 : sizeof text_cut;
    (l.json ? put_json_header : put_text_header)(&l, slr_log_host(host, sizeof host), level_names[level], event);
    put_fields(&l, fmt, args);
    return finish(&l);
}
