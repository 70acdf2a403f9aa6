/* SPDX-License-Identifier: Apache-2.0 */
/* Backing of device memory: a memfd of one header page and the data, mapped shared. No name anywhere, so nothing is
 * left behind when a process is killed; another process reaches it through /proc/<pid>/fd. */
#include "sg.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(struct sg_header) <= SG_HEADER, "the header fits its page");

uint64_t sg_process_start(pid_t pid)
{
    char path[64], text[1024], *p;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    p = strrchr(text, ')'); /* the command may hold spaces and brackets */
    if (!p || p[1] != ' ' || p[2] == 'Z' || p[2] == 'X')
        return 0;
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

uint64_t sg_own_start(void)
{
    static _Atomic uint64_t start;
    if (!atomic_load(&start))
        atomic_store(&start, sg_process_start(getpid()));
    return atomic_load(&start);
}

bool sg_process_alive(pid_t pid, uint64_t start)
{
    uint64_t now = sg_process_start(pid);
    return now && (!start || now == start);
}

/* Maps header and data of `fd`, which stays the caller's when this fails. */
int sg_obj_map_locked(struct sg_mem *m, int fd)
{
    m->hdr = mmap(NULL, SG_HEADER, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m->hdr == MAP_FAILED) {
        m->hdr = NULL;
        return -errno;
    }
    m->base = sg_arena_map_locked(fd, SG_HEADER, m->size, &m->mapped);
    if (!m->base) {
        munmap(m->hdr, SG_HEADER);
        m->hdr = NULL;
        return -ENOMEM;
    }
    m->fd = fd;
    return 0;
}

/* Descriptors go above 1023 where the limit allows: applications that use select() keep the low ones. */
int sg_high_fd(int fd)
{
    int high = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 1024) : -1;
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

void sg_header_fill(struct sg_header *h, uint64_t magic, uint64_t id, size_t size, const struct sg_device *d)
{
    h->generation = id;
    h->size = size;
    h->owner_pid = (uint32_t)getpid();
    h->owner_start = sg_own_start();
    h->physical = d->physical;
    h->uuid = d->uuid;
    h->link_fd = d->link_fd;
    h->magic = magic;
}

int sg_obj_create_locked(struct sg_mem *m)
{
    int fd = sg_high_fd(memfd_create("softgpu", MFD_CLOEXEC)), rc;

    if (fd < 0)
        return -errno;
    rc = ftruncate(fd, (off_t)(SG_HEADER + m->size)) ? -errno : sg_obj_map_locked(m, fd);
    if (rc)
        close(fd);
    return rc;
}

void sg_obj_unmap_locked(struct sg_mem *m)
{
    if (m->base && m->mapped)
        sg_arena_unmap_locked(m->base);
    if (m->hdr)
        munmap(m->hdr, SG_HEADER);
    if (m->fd >= 0)
        close(m->fd);
    m->hdr = NULL;
    m->fd = -1;
}
