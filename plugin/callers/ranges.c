/* SPDX-License-Identifier: Apache-2.0 */
/* The NVTX ranges that a thread has open, by name.
 *
 * Each thread has its own stack, which only it touches: a push and a pop take no lock and wait for nobody, and the text is
 * read by the same thread, in its call of NCCL. The stack's memory comes from the heap at the thread's first push, and is
 * freed when the thread ends. After fork the child has that of the thread that forked; nothing is shared.
 *
 * Domains have stacks of their own in NVTX: a pop takes the innermost range of its domain. Here all are in one stack in
 * the order of their pushes, so that the text shows how they nest. A pop without a push changes nothing. Ranges that are
 * pushed by NVTX's extension for payloads are not seen; where the domain has another one open, their pop ends that.
 *
 * Bounds: 64 ranges with 127 bytes of name each, cut between characters. Ranges above are counted by domain, no more, so
 * that pushes and pops stay in balance; once one of a domain is only counted, those that the domain pushes on top are,
 * too. 62 domains have a name; all further ones are one domain.
 */
#include "plugin/callers/callers_impl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/wait.h"

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

unsigned slr_ranges_domain(const char *name)
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
