/* SPDX-License-Identifier: Apache-2.0 */
/* The C API in a process that uses no CUDA: values, errors, and that nothing starts. With SLIPRING_WEAK it is linked to
 * nothing.
 *
 *   alone          slipring is there
 *   alone none     it is not: the functions of the weak form do nothing
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "slipring.h"

static int failures;
#define EXPECT(cond) ((cond) ? (void)0 : (failures++, (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond)))

static int entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static void versions(void)
{
    char words[32];
    snprintf(words, sizeof words, "%d.%d.%d", SLIPRING_VERSION_MAJOR, SLIPRING_VERSION_MINOR, SLIPRING_VERSION_PATCH);
    EXPECT(slipring_version() == SLIPRING_VERSION_NUMBER);
    EXPECT(strcmp(slipring_version_string(), words) == 0);
}

/* A program of an older version, of this one, and of a newer one. */
static void counters(void)
{
    struct {
        struct slipring_counters c;
        uint64_t newer[2];
    } later;
    const size_t shortest = offsetof(struct slipring_counters, bytes);
    memset(&later, 0xff, sizeof later);
    later.c.size = shortest;
    EXPECT(slipring_counters_read(&later.c) == 0);
    EXPECT(later.c.calls == 0 && later.c.bytes == UINT64_MAX && later.c.size == shortest);
    later.c.size = sizeof later.c;
    EXPECT(slipring_counters_read(&later.c) == 0);
    EXPECT(later.c.bytes == 0 && later.c.sites_broken == 0 && later.newer[0] == UINT64_MAX);
    later.c.size = sizeof later;
    EXPECT(slipring_counters_read(&later.c) == 0);
    EXPECT(later.newer[0] == 0 && later.newer[1] == 0);
    later.c.size = shortest - 1;
    EXPECT(slipring_counters_read(&later.c) == -EINVAL);
    later.c.size = SIZE_MAX / 2; /* never set */
    EXPECT(slipring_counters_read(&later.c) == -EINVAL);
    EXPECT(slipring_counters_read(NULL) == -EINVAL);
}

static void regions(void)
{
    EXPECT(slipring_region_end() == -EPERM);
    EXPECT(slipring_region_begin(4) == -EINVAL);
    EXPECT(slipring_region_end() == -EPERM);
    for (int i = 0; i < SLIPRING_REGION_DEPTH; i++)
        EXPECT(slipring_region_begin(i & 3u) == 0);
    EXPECT(slipring_region_begin(0) == -ENOSPC);
    for (int i = 0; i < SLIPRING_REGION_DEPTH; i++)
        EXPECT(slipring_region_end() == 0);
    EXPECT(slipring_region_end() == -EPERM);
}

static void *other_thread(void *arg)
{
    EXPECT(slipring_region_end() == -EPERM);
    return arg;
}

static void threads(void)
{
    pthread_t t;
    EXPECT(slipring_region_begin(SLIPRING_REGION_GATHERS) == 0);
    EXPECT(pthread_create(&t, NULL, other_thread, NULL) == 0 && pthread_join(t, NULL) == 0);
    EXPECT(slipring_region_end() == 0);
}

#ifdef SLIPRING_WEAK
static int without(void)
{
    EXPECT(!slipring_loaded());
    EXPECT(!slipring_version && !slipring_counters_read);
    EXPECT(slipring_try_region_end() == 0);
    EXPECT(slipring_try_region_begin(99) == 0);
    return failures != 0;
}

static void weak(void)
{
    EXPECT(slipring_loaded());
    EXPECT(slipring_try_region_begin(99) == -EINVAL);
    EXPECT(slipring_try_region_begin(0) == 0);
    EXPECT(slipring_try_region_end() == 0);
    EXPECT(slipring_try_region_end() == -EPERM);
}
#endif

int main(int argc, char **argv)
{
    int files = entries("/proc/self/fd"), tasks = entries("/proc/self/task");
#ifdef SLIPRING_WEAK
    if (argc == 2 && strcmp(argv[1], "none") == 0)
        return without();
    weak();
#endif
    if (argc != 1) {
        fprintf(stderr, "%s: unexpected argument %s\n", argv[0], argv[1]);
        return 2;
    }
    versions();
    counters();
    regions();
    EXPECT(entries("/proc/self/fd") == files);
    EXPECT(entries("/proc/self/task") == tasks);
    threads();
    return failures != 0;
}
