/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a trial that need the others: their blocks are opened by handle and by descriptor,
 * and read. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "tools/doctor/trial.h"

void trial_meet(struct trial_self *s)
{
    _Atomic int *here = &s->t->arrived[s->meetings++];
    atomic_fetch_add(here, 1);
    trial_step(s, "waiting for another rank");
    while (atomic_load(here) < s->t->ranks)
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    *s->r->step = '\0';
}

bool trial_reaches(const struct trial *t, int reader, int owner)
{
    int mine = t->rank[reader].device, theirs = t->rank[owner].device;
    return reader != owner && (mine == theirs || t->devices->link[mine][theirs].access);
}

/* Copies from the peer's memory as the ring does, device to device, and compares. */
static bool same_bytes(struct trial_self *s, enum trial_part part, int peer, CUdeviceptr from)
{
    unsigned char want[TRIAL_BYTES], got[TRIAL_BYTES] = {0};
    trial_pattern(peer, want);
    if (!TRIAL_TRY(s, part, slr_real, cuMemcpyAsync, s->copy, from, TRIAL_BYTES, NULL) ||
        !TRIAL_TRY(s, part, slr_real, cuStreamSynchronize, NULL) ||
        !TRIAL_TRY(s, part, slr_real, cuMemcpyDtoH, got, s->copy, TRIAL_BYTES))
        return false;
    return !memcmp(want, got, sizeof got) || trial_bad(s, part, "the copy", "other bytes than the owner wrote");
}

static void read_block(struct trial_self *s, int peer)
{
    CUdeviceptr at = 0;
    if (!TRIAL_TRY(s, TRIAL_IPC, slr_real, cuIpcOpenMemHandle, &at, s->t->rank[peer].handle,
                   CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
        return;
    if (same_bytes(s, TRIAL_IPC, peer, at) && s->r->state[TRIAL_IPC] == TRIAL_NOT_TRIED)
        s->r->state[TRIAL_IPC] = TRIAL_GOOD;
    TRIAL_TRY(s, TRIAL_IPC, slr_real, cuIpcCloseMemHandle, at);
}

static void read_blocks(struct trial_self *s)
{
    for (int peer = 0; peer < s->t->ranks && s->r->offers; peer++)
        if (trial_reaches(s->t, s->number, peer) && s->t->rank[peer].offers)
            read_block(s, peer);
}

struct virtual_block {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    size_t bytes;
};

static CUmemAllocationProp properties(int device)
{
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = device;
    return p;
}

static bool map_virtual(struct trial_self *s, struct virtual_block *b)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = s->r->device;
    return TRIAL_TRY(s, TRIAL_VMM, slr_real, cuMemAddressReserve, &b->at, b->bytes, 0, 0, 0) &&
           TRIAL_TRY(s, TRIAL_VMM, slr_real, cuMemMap, b->at, b->bytes, 0, b->handle, 0) &&
           TRIAL_TRY(s, TRIAL_VMM, slr_real, cuMemSetAccess, b->at, b->bytes, &access, 1);
}

static void unmap_virtual(struct trial_self *s, struct virtual_block *b)
{
    TRIAL_TRY(s, TRIAL_VMM, slr_real, cuMemUnmap, b->at, b->bytes);
    TRIAL_TRY(s, TRIAL_VMM, slr_real, cuMemAddressFree, b->at, b->bytes);
}

static bool make_virtual(struct trial_self *s, struct virtual_block *b, int *fd)
{
    CUmemAllocationProp p = properties(s->r->device);
    return TRIAL_TRY(s, TRIAL_VMM, s->drv, cuMemGetAllocationGranularity, &b->bytes, &p,
                     CU_MEM_ALLOC_GRANULARITY_MINIMUM) &&
           TRIAL_TRY(s, TRIAL_VMM, s->drv, cuMemCreate, &b->handle, b->bytes, &p, 0) && map_virtual(s, b) &&
           trial_write(s, TRIAL_VMM, b->at) &&
           TRIAL_TRY(s, TRIAL_VMM, slr_real, cuMemExportToShareableHandle, fd, b->handle,
                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

struct parcel {
    int from;
    size_t bytes;
};

static bool send_descriptor(int to, struct parcel what, int fd)
{
    struct iovec io = {&what, sizeof what};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } c = {.head = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = c.space, .msg_controllen = sizeof c.space};
    memcpy(CMSG_DATA(&c.head), &fd, sizeof fd);
    return sendmsg(to, &m, MSG_NOSIGNAL) == (ssize_t)sizeof what;
}

/* -1: nothing there. */
static int take_descriptor(int from, struct parcel *what)
{
    struct iovec io = {what, sizeof *what};
    int fd = -1;
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } c = {.space = {0}};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = c.space, .msg_controllen = sizeof c.space};
    if (recvmsg(from, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *what)
        return -1;
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    if (head && head->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(head), sizeof fd);
    return fd;
}

static void send_all(struct trial_self *s, const struct virtual_block *b, int fd)
{
    for (int peer = 0; peer < s->t->ranks; peer++)
        if (trial_reaches(s->t, peer, s->number) &&
            !send_descriptor(s->t->inbox[peer][1], (struct parcel){s->number, b->bytes}, fd))
            trial_bad(s, TRIAL_VMM, "sendmsg", "a descriptor could not be passed on");
}

static void read_virtual(struct trial_self *s, const struct parcel *what, int fd)
{
    struct virtual_block b = {.bytes = what->bytes};
    if (!TRIAL_TRY(s, TRIAL_VMM, slr_real, cuMemImportFromShareableHandle, &b.handle, (void *)(intptr_t)fd,
                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return;
    if (map_virtual(s, &b)) {
        if (same_bytes(s, TRIAL_VMM, what->from, b.at) && s->r->state[TRIAL_VMM] == TRIAL_NOT_TRIED)
            s->r->state[TRIAL_VMM] = TRIAL_GOOD;
        unmap_virtual(s, &b);
    }
    TRIAL_TRY(s, TRIAL_VMM, slr_real, cuMemRelease, b.handle);
}

static void read_all_virtual(struct trial_self *s)
{
    struct parcel what;
    for (int fd; (fd = take_descriptor(s->t->inbox[s->number][0], &what)) >= 0; close(fd))
        read_virtual(s, &what, fd);
}

void trial_peers(struct trial_self *s)
{
    struct virtual_block b = {.bytes = 0};
    int fd = -1;
    bool vmm = s->r->offers && s->t->devices->device[s->r->device].vmm;
    trial_meet(s); /* all have made their blocks */
    read_blocks(s);
    trial_meet(s); /* nobody needs them any more */
    if (vmm && make_virtual(s, &b, &fd))
        send_all(s, &b, fd);
    trial_meet(s);
    if (vmm)
        read_all_virtual(s);
    trial_meet(s);
    if (fd >= 0)
        close(fd);
    /* What is left goes with the process. */
}
