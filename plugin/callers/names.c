/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/callers/callers.h"

#include <stdlib.h>
#include <string.h>

struct token {
    const char *at;
    size_t len; /* 0: the end */
    bool number;
};

static const char digits[] = "0123456789", hex[] = "0123456789abcdefABCDEF";

static struct token first_of(const char *at)
{
    if (at[0] == '0' && at[1] == 'x' && at[2] && strchr(hex, at[2]))
        return (struct token){at, 2 + strspn(at + 2, hex), false};
    if (*at == '*')
        return (struct token){at, 1, true};
    const size_t number = strspn(at, digits);
    return (struct token){at, number ? number : *at != '\0', number > 0};
}

static bool same(const struct token *a, const struct token *b)
{
    return a->len == b->len && memcmp(a->at, b->at, a->len) == 0;
}

/* Numbers are counted from 0; ANY: all of a text's. */
enum { NUMBERS = 16, NONE = -1, ANY = -2 };

/* Whether they differ in numbers only; of these, `but` alone may differ (NONE: only where a has a *). */
static bool alike(const char *a, const char *b, int but)
{
    struct token s, t;
    int number = 0;
    do {
        s = first_of(a), t = first_of(b);
        const bool may = s.number && (but == ANY || but == number || (but == NONE && *s.at == '*'));
        if (s.number != t.number || (!same(&s, &t) && !may))
            return false;
        number += s.number;
        a += s.len, b += t.len;
    } while (s.len);
    return true;
}

static bool covers(const char *a, const char *b)
{
    return alike(a, b, NONE);
}

/* `a`, with a * where `b`, which is alike, has another number. A * is never longer than what it replaces. */
static void generalise(char *a, const char *b)
{
    struct token s;
    for (char *to = a;; a += s.len) {
        struct token t = first_of(b);
        s = first_of(a);
        const bool kept = same(&s, &t);
        memmove(to, kept ? s.at : "*", kept ? s.len : 1);
        if (s.len == 0) {
            *to = '\0';
            return;
        }
        to += kept ? s.len : 1;
        b += t.len;
    }
}

static void drop(struct slr_names *n, unsigned i)
{
    free(n->name[i]);
    memmove(&n->name[i], &n->name[i + 1], (--n->count - i) * sizeof n->name[0]);
}

/* How many names, with the new one, would be gone if number `but` were a *. */
static unsigned gain(const struct slr_names *n, const char *name, int but)
{
    unsigned gone = 0;
    for (unsigned i = 0; i < n->count; i++) {
        bool twin = alike(name, n->name[i], but);
        for (unsigned k = 0; k < i && !twin; k++)
            twin = alike(n->name[k], n->name[i], but);
        gone += twin;
    }
    return gone;
}

static void drop_covered(struct slr_names *n)
{
    for (unsigned i = 0; i < n->count; i++)
        for (unsigned k = n->count; k-- > 0;)
            if (k != i && covers(n->name[i], n->name[k])) {
                drop(n, k);
                i -= k < i;
            }
}

/* Number `but` becomes a * in all that have a twin, the new name among them. */
static void unite(struct slr_names *n, const char *name, int but)
{
    for (unsigned i = 0; i < n->count; i++) {
        if (alike(n->name[i], name, but))
            generalise(n->name[i], name);
        for (unsigned k = n->count; k-- > i + 1;)
            if (alike(n->name[i], n->name[k], but)) {
                generalise(n->name[i], n->name[k]);
                drop(n, k);
            }
    }
    drop_covered(n);
}

static const char *find(const struct slr_names *n, const char *name)
{
    for (unsigned i = 0; i < n->count; i++)
        if (covers(n->name[i], name))
            return n->name[i];
    return NULL;
}

/* Which number, as a *, makes most of them one; ANY: several of a name have to; NONE: no two are alike. */
static int choose(const struct slr_names *n, const char *name)
{
    int best = gain(n, name, ANY) ? ANY : NONE;
    unsigned most = 0;
    for (int but = 0; but < NUMBERS; but++)
        if (gain(n, name, but) > most) {
            most = gain(n, name, but);
            best = but;
        }
    return best;
}

static const char *no_room(struct slr_names *n)
{
    const bool told = n->more;
    n->more = true;
    return told ? NULL : SLR_NAMES_MORE;
}

const char *slr_names_add(struct slr_names *n, const char *name)
{
    if (strcmp(name, SLR_NAMES_MORE) == 0)
        return no_room(n);
    if (find(n, name))
        return NULL;
    if (n->count == SLR_NAMES) {
        const int but = choose(n, name);
        if (but != NONE)
            unite(n, name, but);
        if (find(n, name))
            return find(n, name);
    }
    char *copy = n->count < SLR_NAMES ? strdup(name) : NULL;
    if (!copy)
        return no_room(n);
    return n->name[n->count++] = copy;
}

void slr_names_close(struct slr_names *n)
{
    for (unsigned i = 0; i < n->count; i++)
        free(n->name[i]);
    *n = (struct slr_names){0};
}
