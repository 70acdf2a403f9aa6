/* SPDX-License-Identifier: Apache-2.0 */
/* The library as a tool of NVTX (abi/nvtx.h): the program's pushes and pops of ranges, and nothing else of NVTX, are
 * looked at. It is asked once by each library of the program that has NVTX, at that library's first call, and says no
 * unless SLIPRING_CALLERS is nvtx: then these calls do nothing, as without a tool.
 *
 * It calls nothing of NVTX, whose instance waits for it. Of slipring it only reads the settings, so it may be asked at
 * any time, on any thread, in a process that has no communicator, and in one where the library is not preloaded (there
 * nobody ever asks for the ranges).
 *
 * Registered strings are copied, 127 bytes of each, 4096 of them; a handle is the copy's address. They are never freed:
 * a program may use a handle as long as it lives. Handles of others, as of a library that was told by another tool, are
 * not followed. */
#include "plugin/callers/callers.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/settings.h"
#include "base/wait.h"
#include "plugin/abi/nvtx.h"

/* ---- the ranges that a thread has open, by name ----
 *
 * Each thread has its own stack, which only it touches: a push and a pop take no lock and wait for nobody, and the text
 * is read by the same thread, in its call of NCCL. The stack's memory comes from the heap at the thread's first push,
 * and is freed when the thread ends. After fork the child has that of the thread that forked; nothing is shared.
 *
 * Domains have stacks of their own in NVTX: a pop takes the innermost range of its domain. Here all are in one stack in
 * the order of their pushes, so that the text shows how they nest. A pop without a push changes nothing. Ranges that
 * are pushed by NVTX's extension for payloads are not seen; where the domain has another one open, their pop ends that.
 *
 * Bounds: 64 ranges with 127 bytes of name each, cut between characters. Ranges above are counted by domain, no more,
 * so that pushes and pops stay in balance; once one of a domain is only counted, those that the domain pushes on top
 * are, too. 62 domains have a name; all further ones are one domain.
 */

enum { DEFAULT = 0, OTHERS = SLR_RANGE_DOMAINS - 1, DOMAIN_NAME = 48 };

struct range {
    uint8_t domain;
    char name[SLR_RANGE_NAME];
};

struct ranges {
    unsigned count;                    /* in `range` */
    unsigned above[SLR_RANGE_DOMAINS]; /* of each domain, that are only counted */
    struct range range[SLR_RANGES];    /* in the order of their pushes */
};

static _Thread_local struct ranges *own __attribute__((tls_model("initial-exec")));

/* ---- domains ---- */

enum { FREE, BEING_MADE, THERE };

/* Never freed: the program keeps handles. A thread that dies in fork while it makes one costs a place. */
static struct {
    _Atomic int state;
    char name[DOMAIN_NAME];
} domains[SLR_RANGE_DOMAINS];

/* `from` cut to `size`, between characters. */
static void copy_name(char *to, size_t size, const char *from)
{
    size_t len = strnlen(from, size);
    if (len == size)
        for (len--; len > 0 && ((unsigned char)from[len] & 0xc0) == 0x80;)
            len--;
    memcpy(to, from, len);
    to[len] = '\0';
}

static unsigned domain_by_name(const char *name)
{
    char wanted[DOMAIN_NAME];
    copy_name(wanted, sizeof wanted, name);
    for (unsigned i = DEFAULT + 1; i < OTHERS; i++) {
        int state = FREE;
        if (atomic_compare_exchange_strong(&domains[i].state, &state, BEING_MADE)) {
            memcpy(domains[i].name, wanted, sizeof wanted);
            atomic_store(&domains[i].state, THERE);
            return i;
        }
        if (state == THERE && strcmp(domains[i].name, wanted) == 0)
            return i;
    }
    return OTHERS;
}

/* ---- a thread's ranges ---- */

static pthread_key_t key;

/* What the thread pushes afterwards, in another destructor, has a new stack. */
static void release(void *ranges)
{
    own = NULL;
    free(ranges);
}

static struct ranges *make(void)
{
    static struct slr_once once;
    static bool keyed;
    if (slr_once_begin(&once)) {
        keyed = pthread_key_create(&key, release) == 0;
        slr_once_end(&once);
    }
    struct ranges *r = keyed ? calloc(1, sizeof *r) : NULL;
    if (r && pthread_setspecific(key, r) != 0) {
        free(r);
        r = NULL;
    }
    return own = r;
}

static unsigned in_stack(const struct ranges *r, unsigned domain)
{
    unsigned n = 0;
    for (unsigned i = 0; i < r->count; i++)
        n += r->range[i].domain == domain;
    return n;
}

int slr_ranges_push(unsigned domain, const char *name)
{
    struct ranges *r = own ? own : make();
    if (!r || domain >= SLR_RANGE_DOMAINS)
        return -1;
    const unsigned level = in_stack(r, domain) + r->above[domain];
    if (r->count == SLR_RANGES || r->above[domain]) {
        r->above[domain]++;
    } else {
        struct range *top = &r->range[r->count++];
        top->domain = (uint8_t)domain;
        copy_name(top->name, sizeof top->name, name);
    }
    return (int)level;
}

int slr_ranges_pop(unsigned domain)
{
    struct ranges *r = own;
    if (!r || domain >= SLR_RANGE_DOMAINS)
        return -1;
    const unsigned level = in_stack(r, domain) + r->above[domain];
    if (r->above[domain]) {
        r->above[domain]--;
    } else {
        unsigned i = r->count;
        while (i > 0 && r->range[i - 1].domain != domain)
            i--;
        if (i > 0)
            memmove(&r->range[i - 1], &r->range[i], (--r->count - (i - 1)) * sizeof r->range[0]);
    }
    return (int)level - 1;
}

/* ---- the text ---- */

static const char between[] = " > ", left_out[] = "...";

static const char *domain_name(const struct range *at)
{
    return at->domain == DEFAULT ? "" : at->domain == OTHERS ? "?" : domains[at->domain].name;
}

static const char *shown(const struct range *at)
{
    return *at->name ? at->name : "(no name)";
}

static size_t length(const struct range *at)
{
    return strlen(domain_name(at)) + (at->domain != DEFAULT) + strlen(shown(at)) + strlen(between);
}

static bool any_above(const struct ranges *r)
{
    for (unsigned i = 0; i < SLR_RANGE_DOMAINS; i++)
        if (r->above[i])
            return true;
    return false;
}

bool slr_ranges_text(char *buf, size_t size)
{
    const struct ranges *r = own;
    *buf = '\0';
    if (!r || r->count == 0)
        return false;
    size_t room = size - 2 * sizeof left_out - 2 * sizeof between, len = 0;
    unsigned first = r->count;
    for (; first > 0 && length(&r->range[first - 1]) <= room; first--)
        room -= length(&r->range[first - 1]);
    if (first > 0)
        len = (size_t)snprintf(buf, size, "%s", left_out);
    for (unsigned i = first; i < r->count; i++) {
        const struct range *at = &r->range[i];
        len += (size_t)snprintf(buf + len, size - len, "%s%s%s%s", len ? between : "", domain_name(at),
                                at->domain != DEFAULT ? ":" : "", shown(at));
    }
    if (any_above(r))
        snprintf(buf + len, size - len, "%s%s", between, left_out);
    return true;
}

/* ---- what NVTX calls, and what it is told ---- */

#define EXPORTED __attribute__((visibility("default")))

enum { STRINGS = 4096 };

struct string {
    char text[SLR_RANGE_NAME];
};

/* Made at the first registration: untouched pages of it cost nothing. Each string is written before its handle is
 * out. */
static struct string *_Atomic strings;
static _Atomic unsigned string_count;
static struct string no_room = {"(registered string)"};

/* What a domain's handle points to: its place is its number. */
static char domain_handles[SLR_RANGE_DOMAINS];

/* ---- texts ---- */

/* One character of a wide text as UTF-8; what is none becomes U+FFFD. Returns its length. */
static size_t put_utf8(char *to, uint32_t c)
{
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        c = 0xfffd;
    const size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)(lead[n] | c);
    return n;
}

static const char *narrow(char buf[SLR_RANGE_NAME], const wchar_t *text)
{
    size_t len = 0;
    for (; text && *text && len + 5 <= SLR_RANGE_NAME; text++)
        len += put_utf8(buf + len, (uint32_t)*text);
    buf[len] = '\0';
    return buf;
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

static struct string *all_strings(void)
{
    struct string *all = atomic_load(&strings), *fresh = all ? NULL : calloc(STRINGS, sizeof *fresh);
    if (fresh && !atomic_compare_exchange_strong(&strings, &all, fresh)) {
        free(fresh);
        return all;
    }
    return all ? all : fresh;
}

static const void *keep_string(const char *text)
{
    struct string *all = all_strings();
    const unsigned i = all ? atomic_fetch_add(&string_count, 1) : STRINGS;
    if (i >= STRINGS) {
        atomic_store(&string_count, STRINGS);
        return &no_room;
    }
    memcpy(all[i].text, text, strnlen(text, sizeof all[i].text - 1));
    return &all[i];
}

static const char *string_of(const void *handle)
{
    const struct string *all = atomic_load(&strings), *s = handle;
    return s == &no_room || (all && s >= all && s < all + STRINGS) ? s->text : "";
}

static const char *message(const struct slr_nvtx_event *e, char buf[SLR_RANGE_NAME])
{
    if (!e || e->size < sizeof *e)
        return "";
    switch (e->message_type) {
    case SLR_NVTX_ASCII:
        return or_empty(e->message.ascii);
    case SLR_NVTX_UNICODE:
        return narrow(buf, e->message.unicode);
    case SLR_NVTX_REGISTERED:
        return string_of(e->message.registered);
    default:
        return "";
    }
}

/* ---- what NVTX calls ---- */

static unsigned domain_of(const void *handle)
{
    const char *at = handle;
    if (!handle)
        return 0;
    return at > domain_handles && at < domain_handles + SLR_RANGE_DOMAINS ? (unsigned)(at - domain_handles)
                                                                          : SLR_RANGE_DOMAINS - 1;
}

static int level_of(int level)
{
    return level < 0 ? SLR_NVTX_NO_LEVEL : level;
}

static int domain_push(const void *domain, const struct slr_nvtx_event *e)
{
    char buf[SLR_RANGE_NAME];
    return level_of(slr_ranges_push(domain_of(domain), message(e, buf)));
}

static int domain_pop(const void *domain)
{
    return level_of(slr_ranges_pop(domain_of(domain)));
}

static int push(const struct slr_nvtx_event *e)
{
    return domain_push(NULL, e);
}

static int push_a(const char *text)
{
    return level_of(slr_ranges_push(0, or_empty(text)));
}

static int push_w(const wchar_t *text)
{
    char buf[SLR_RANGE_NAME];
    return push_a(narrow(buf, text));
}

static int pop(void)
{
    return domain_pop(NULL);
}

static const void *register_a(const void *domain, const char *text)
{
    (void)domain;
    return keep_string(or_empty(text));
}

static const void *register_w(const void *domain, const wchar_t *text)
{
    char buf[SLR_RANGE_NAME];
    return register_a(domain, narrow(buf, text));
}

static const void *create_a(const char *name)
{
    return &domain_handles[domain_by_name(or_empty(name))];
}

static const void *create_w(const wchar_t *name)
{
    char buf[SLR_RANGE_NAME];
    return create_a(narrow(buf, name));
}

/* ---- the injection ---- */

struct place {
    unsigned at;
    slr_nvtx_function with;
};

static const struct place core[] = {{SLR_NVTX_RANGE_PUSH_EX, (slr_nvtx_function)push},
                                    {SLR_NVTX_RANGE_PUSH_A, (slr_nvtx_function)push_a},
                                    {SLR_NVTX_RANGE_PUSH_W, (slr_nvtx_function)push_w},
                                    {SLR_NVTX_RANGE_POP, (slr_nvtx_function)pop}};
static const struct place core2[] = {{SLR_NVTX_DOMAIN_RANGE_PUSH_EX, (slr_nvtx_function)domain_push},
                                     {SLR_NVTX_DOMAIN_RANGE_POP, (slr_nvtx_function)domain_pop},
                                     {SLR_NVTX_REGISTER_STRING_A, (slr_nvtx_function)register_a},
                                     {SLR_NVTX_REGISTER_STRING_W, (slr_nvtx_function)register_w},
                                     {SLR_NVTX_DOMAIN_CREATE_A, (slr_nvtx_function)create_a},
                                     {SLR_NVTX_DOMAIN_CREATE_W, (slr_nvtx_function)create_w}};

/* All of a module's, or none: a push without its pop would be worse than neither. */
static bool attach(const struct slr_nvtx_callbacks *c, enum slr_nvtx_module module, const struct place *places,
                   size_t n)
{
    slr_nvtx_table table = NULL;
    unsigned size = 0;
    if (!c->get_module(module, &table, &size) || !table)
        return false;
    for (size_t i = 0; i < n; i++)
        if (places[i].at >= size || !table[places[i].at])
            return false;
    for (size_t i = 0; i < n; i++)
        *table[places[i].at] = places[i].with;
    return true;
}

EXPORTED int InitializeInjectionNvtx2(slr_nvtx_get_table get)
{
    if (!slr_get(SLR_S_ENABLE) || slr_get(SLR_S_CALLERS) != SLR_CALLERS_NVTX)
        return 0;
    const struct slr_nvtx_callbacks *c = get ? get(SLR_NVTX_TABLE_CALLBACKS) : NULL;
    if (!c || c->size < sizeof *c || !c->get_module)
        return 0;
    const bool any = attach(c, SLR_NVTX_CORE, core, sizeof core / sizeof *core);
    return attach(c, SLR_NVTX_CORE2, core2, sizeof core2 / sizeof *core2) || any;
}

int slr_injection_named(const char *path)
{
    struct stat named, library;
    Dl_info at;
    return dladdr(domain_handles, &at) && at.dli_fname && stat(path, &named) == 0 &&
           stat(at.dli_fname, &library) == 0 && named.st_dev == library.st_dev && named.st_ino == library.st_ino;
}
