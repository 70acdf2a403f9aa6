/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/callers/stack.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <string.h>
#include "base/hash.h"

enum { OWN_FRAMES = 12 }; /* more than there are between the hook and here */

/* Where this library begins and ends in memory, by the linker. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static int is_own(const void *at)
{
    return (const char *)at >= __ehdr_start && (const char *)at < _end;
}

void slr_stack_take(struct slr_stack *s)
{
    void *all[OWN_FRAMES + SLR_STACK_FRAMES];
    const int n = backtrace(all, OWN_FRAMES + SLR_STACK_FRAMES);
    int first = 0;
    while (first < n && !is_own(all[first])) /* of a sanitizer, which stands before libc */
        first++;
    while (first < n && is_own(all[first]))
        first++;
    s->count = n - first < SLR_STACK_FRAMES ? n - first : SLR_STACK_FRAMES;
    memcpy(s->frame, all + first, (size_t)s->count * sizeof all[0]);
}

uint64_t slr_stack_key(const struct slr_stack *s)
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

void slr_stack_text(const struct slr_stack *s, char *buf, size_t size)
{
    char frame[160];
    size_t len = 0;
    *buf = '\0';
    for (int i = 0, shown = 0; i < s->count && shown < SLR_STACK_SHOWN && len < size; i++)
        if (frame_text(s->frame[i], frame, sizeof frame))
            len += (size_t)snprintf(buf + len, size - len, "%s%s", shown++ ? " < " : "", frame);
}
