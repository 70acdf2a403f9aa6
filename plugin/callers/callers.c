/* SPDX-License-Identifier: Apache-2.0 */
/* Texts. The latest 1024 different ones of the process are kept, each up to 511 bytes, on the heap; the number of an
 * older one finds none. A program that names its steps makes a new one in each step: what of it reaches the log, and
 * the memory of a site, is bounded by names.c. A text is copied out: no pointer to it leaves the lock.
 *
 * Shapes. 256 of them have names; the calls of others have none by shape, which one line says. In mode stack the frames
 * are taken in the first 256 calls of a shape. After that they are known if all of these came from one place; if not,
 * they go on being taken.
 *
 * Locks: one, innermost, under which nothing is called but the allocator. Fork: the child is switched off before it
 * comes here (util/process.h); its NVTX calls touch no lock. Errors: without memory there is no name. */
#include "plugin/callers/callers.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"

enum { TEXTS = 1024, SHAPES = 256, STACK_CALLS = 256 };

struct text {
    uint64_t hash;
    char *text;
};

struct shape {
    uint64_t key;
    struct slr_names names;
    unsigned lines;
    /* Mode stack. */
    unsigned calls; /* whose frames were taken */
    uint64_t only;  /* where they came from */
    bool several;
};

struct known_stack {
    uint64_t key, caller;
};

/* Of everything here. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct text texts[TEXTS]; /* by number, modulo */
static uint64_t latest;          /* number; from 1 */
static struct shape shapes[SHAPES];
static unsigned shape_count;
static bool shapes_full_told;
static struct known_stack stacks[TEXTS]; /* by key */

/* ---- texts ---- */

static uint64_t hash_of(const char *text)
{
    uint64_t h = 0;
    for (; *text; text++)
        h = slr_mix(h, (unsigned char)*text);
    return h;
}

static const char *text_of(uint64_t caller)
{
    return caller > 0 && caller <= latest && caller + TEXTS > latest ? texts[caller % TEXTS].text : NULL;
}

/* 0: no memory. */
static uint64_t number_of(const char *text)
{
    const uint64_t hash = hash_of(text), oldest = latest < TEXTS ? 1 : latest - TEXTS + 1;
    for (uint64_t i = latest; i >= oldest; i--)
        if (texts[i % TEXTS].hash == hash && strcmp(texts[i % TEXTS].text, text) == 0)
            return i;
    char *copy = strdup(text);
    if (!copy)
        return 0;
    struct text *t = &texts[++latest % TEXTS];
    free(t->text);
    *t = (struct text){hash, copy};
    return latest;
}

bool slr_caller_text(uint64_t caller, char buf[SLR_CALLER_TEXT])
{
    pthread_mutex_lock(&lock);
    const char *text = text_of(caller);
    snprintf(buf, SLR_CALLER_TEXT, "%s", text ? text : "");
    pthread_mutex_unlock(&lock);
    return text != NULL;
}

/* ---- shapes ---- */

/* NULL: there are too many. */
static struct shape *shape_of(uint64_t key)
{
    for (unsigned i = 0; i < shape_count; i++)
        if (shapes[i].key == key)
            return &shapes[i];
    if (shape_count == SHAPES)
        return NULL;
    shapes[shape_count].key = key;
    return &shapes[shape_count++];
}

static void tell_full(bool full)
{
    if (full)
        slr_log(SLR_LOG_INFO, "callers_full", "shapes=%d msg=%s", SHAPES,
                "the calls of further shapes have no names by shape");
}

bool slr_caller_of_shape(uint64_t key, uint64_t caller, char buf[SLR_CALLER_TEXT])
{
    pthread_mutex_lock(&lock);
    struct shape *s = shape_of(key);
    const char *text = s ? text_of(caller) : NULL;
    const char *fresh = text && s->lines < SLR_CALLER_LINES ? slr_names_add(&s->names, text) : NULL;
    const bool full = !s && !shapes_full_told;
    shapes_full_told |= full;
    if (fresh) {
        s->lines++;
        snprintf(buf, SLR_CALLER_TEXT, "%s", fresh);
    }
    pthread_mutex_unlock(&lock);
    tell_full(full);
    return fresh != NULL;
}

/* ---- frames ----
 *
 * The native frames that a call of NCCL comes from.
 *
 * Taken by libc's backtrace(), which loads libgcc_s.so.1 by itself at its first call: the library keeps its only
 * dependency. That call allocates, and may wait for the dynamic linker; so it is made where slipring holds no lock, in
 * the program's own call of NCCL, where the program waits for as much anyway (its first kernel loads more).
 *
 * Frames of this library and of libnccl are left out. A frame is SYMBOL+OFFSET (FILE) where dladdr knows one, else
 * FILE+OFFSET, which addr2line takes; offsets are those of the return address. Four frames, innermost first.
 *
 * Of an interpreter these are the interpreter's frames, not the program's lines. To ask Python for those takes its lock
 * (the GIL), which another thread may hold that waits for this call. To read the thread's own frames without it would
 * be safe, as they can not change meanwhile, but their layout differs from version to version, and CPython's function
 * that does so (for faulthandler) is for others up to 3.12 and from 3.15 on only. So slipring does not.
 */

enum { FRAMES = 8, SHOWN = 4, OWN_FRAMES = 12 }; /* the last: more than there are between the hook and here */

struct frames {
    void *frame[FRAMES]; /* outside of this library */
    int count;
};

/* Where this library begins and ends in memory, by the linker. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static int is_own(const void *at)
{
    return (const char *)at >= __ehdr_start && (const char *)at < _end;
}

static void take_frames(struct frames *s)
{
    void *all[OWN_FRAMES + FRAMES];
    const int n = backtrace(all, OWN_FRAMES + FRAMES);
    int first = 0;
    while (first < n && !is_own(all[first])) /* of a sanitizer, which stands before libc */
        first++;
    while (first < n && is_own(all[first]))
        first++;
    s->count = n - first < FRAMES ? n - first : FRAMES;
    memcpy(s->frame, all + first, (size_t)s->count * sizeof all[0]);
}

static uint64_t frames_key(const struct frames *s)
{
    uint64_t key = (uint64_t)s->count;
    for (int i = 0; i < s->count; i++)
        key = slr_mix(key, (uint64_t)(uintptr_t)s->frame[i]);
    return key;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* False: it is NCCL's. */
static int frame_text(const void *at, char *buf, size_t size)
{
    Dl_info info;
    if (!dladdr(at, &info) || !info.dli_fname) {
        snprintf(buf, size, "%p", at); /* code that was made while the program runs */
        return 1;
    }
    const char *file = base_name(info.dli_fname);
    if (strncmp(file, "libnccl.so", 10) == 0)
        return 0;
    if (info.dli_sname)
        snprintf(buf, size, "%.80s+0x%zx (%.40s)", info.dli_sname,
                 (size_t)((const char *)at - (const char *)info.dli_saddr), file);
    else
        snprintf(buf, size, "%.80s+0x%zx", file, (size_t)((const char *)at - (const char *)info.dli_fbase));
    return 1;
}

static void frames_text(const struct frames *s, char *buf, size_t size)
{
    char frame[160];
    size_t len = 0;
    *buf = '\0';
    for (int i = 0, shown = 0; i < s->count && shown < SHOWN && len < size; i++)
        if (frame_text(s->frame[i], frame, sizeof frame))
            len += (size_t)snprintf(buf + len, size - len, "%s%s", shown++ ? " < " : "", frame);
}

/* ---- a call ---- */

static uint64_t by_ranges(void)
{
    char text[SLR_CALLER_TEXT];
    if (!slr_ranges_text(text, sizeof text))
        snprintf(text, sizeof text, "(no range)");
    pthread_mutex_lock(&lock);
    const uint64_t caller = number_of(text);
    pthread_mutex_unlock(&lock);
    return caller;
}

/* Where all calls of the shape come from; 0: not known. */
static uint64_t only_place(uint64_t key)
{
    pthread_mutex_lock(&lock);
    const struct shape *s = shape_of(key);
    const uint64_t caller = s && s->calls >= STACK_CALLS && !s->several && text_of(s->only) ? s->only : 0;
    pthread_mutex_unlock(&lock);
    return caller;
}

/* Of a stack that was seen before. */
static uint64_t known(uint64_t key)
{
    pthread_mutex_lock(&lock);
    const struct known_stack *s = &stacks[key % TEXTS];
    const uint64_t caller = s->key == key && text_of(s->caller) ? s->caller : 0;
    pthread_mutex_unlock(&lock);
    return caller;
}

static uint64_t take_stack(void)
{
    char text[SLR_CALLER_TEXT];
    struct frames s;
    take_frames(&s);
    const uint64_t key = frames_key(&s);
    uint64_t caller = known(key);
    if (caller || s.count == 0)
        return caller;
    frames_text(&s, text, sizeof text);
    pthread_mutex_lock(&lock);
    caller = number_of(text);
    stacks[key % TEXTS] = (struct known_stack){key, caller};
    pthread_mutex_unlock(&lock);
    return caller;
}

static uint64_t by_stack(uint64_t key)
{
    uint64_t caller = only_place(key);
    if (caller)
        return caller;
    caller = take_stack();
    pthread_mutex_lock(&lock);
    struct shape *s = shape_of(key);
    if (s) {
        s->several |= s->calls > 0 && s->only != caller;
        s->only = caller;
        s->calls++;
    }
    pthread_mutex_unlock(&lock);
    return caller;
}

uint64_t slr_caller_now(uint64_t shape)
{
    switch ((enum slr_callers)slr_get(SLR_S_CALLERS)) {
    case SLR_CALLERS_NVTX:
        return by_ranges();
    case SLR_CALLERS_STACK:
        return by_stack(shape);
    default:
        return 0;
    }
}

/* ---- */

static const char *tool(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    return path ? path : "";
}

bool slr_callers_tool(void)
{
    return slr_get(SLR_S_CALLERS) == SLR_CALLERS_NVTX && *tool() && slr_injection_named(tool());
}

void slr_callers_tell(void)
{
    static atomic_bool told;
    if (!slr_callers_on() || atomic_exchange(&told, true))
        return;
    if (!slr_log_enabled(SLR_LOG_INFO))
        slr_log(SLR_LOG_WARN, "callers_off", "tool=%s msg=%s", tool(),
                "the names of call sites are lines of level info: SLIPRING_LOG=info");
    else if (slr_get(SLR_S_CALLERS) == SLR_CALLERS_NVTX && !slr_callers_tool())
        slr_log(SLR_LOG_WARN, "callers_off", "tool=%s msg=%s", tool(),
                *tool() ? "NVTX_INJECTION64_PATH names another tool, which gets the program's ranges"
                        : "NVTX_INJECTION64_PATH has to name this library; `slipring run` sees to it");
}
