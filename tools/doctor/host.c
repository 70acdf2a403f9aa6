/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces, users, shared memory, limits, the network, the Multi-Process Service. */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <mntent.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "tools/doctor/doctor.h"

#define MIB (1ull << 20)
#define SHM_ENOUGH (256 * MIB) /* NCCL takes some MiB for each pair of ranks */
#define FILES_ENOUGH 1024
/* Of the host's first namespaces the kernel fixes the numbers of these two
 * (include/linux/proc_ns.h). */
#define FIRST_IPC "ipc:[4026531839]"
#define FIRST_PID "pid:[4026531836]"

static const char *namespace_of(const char *kind, char *buf, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
    ssize_t n = readlink(path, buf, size - 1);
    buf[n > 0 ? n : 0] = '\0';
    return buf;
}

static void check_namespaces(struct doctor *d)
{
    char ipc[64], pid[64], net[64];
    namespace_of("ipc", ipc, sizeof ipc);
    namespace_of("pid", pid, sizeof pid);
    namespace_of("net", net, sizeof net);
    if (!*ipc || !*pid || !*net) {
        doctor_add(d, DOCTOR_NAMESPACES, DOCTOR_UNKNOWN, "/proc/self/ns can not be read");
        return;
    }
    bool own = strcmp(ipc, FIRST_IPC) != 0 || strcmp(pid, FIRST_PID) != 0;
    doctor_add(d, DOCTOR_NAMESPACES, DOCTOR_OK, "%s %s %s%s", ipc, pid, net,
               own ? ": a container's; all ranks of the host need these three" : ": the host's");
}

/* The options of the mount at `path`; the last one counts. */
static void mount_options(const char *path, char *out, size_t size)
{
    FILE *mounts = setmntent("/proc/self/mounts", "r");
    *out = '\0';
    for (struct mntent *m; mounts && (m = getmntent(mounts));)
        if (strcmp(m->mnt_dir, path) == 0)
            snprintf(out, size, " (%s, %s)", m->mnt_type, m->mnt_opts);
    if (mounts)
        endmntent(mounts);
}

static void check_proc(struct doctor *d)
{
    char link[32] = "", options[256];
    ssize_t n = readlink("/proc/self", link, sizeof link - 1);
    mount_options("/proc", options, sizeof options);
    if (n <= 0)
        doctor_add(d, DOCTOR_PROC, DOCTOR_WARN, "/proc does not show this process: %s", strerror(errno));
    else if (atoi(link) != (int)getpid())
        doctor_add(d, DOCTOR_PROC, DOCTOR_WARN,
                   "/proc belongs to another process-id namespace: this process is %d, there %s", (int)getpid(), link);
    else
        doctor_add(d, DOCTOR_PROC, DOCTOR_OK, "/proc shows this process as %d%s", (int)getpid(),
                   strstr(options, "hidepid=") ? "; it hides other users' processes (hidepid), which does no harm"
                                               : "");
}

static void check_user(struct doctor *d)
{
    if (getuid() != geteuid() || getgid() != getegid())
        doctor_add(d, DOCTOR_USER, DOCTOR_FAIL, "the real user is %u, the effective one %u", getuid(), geteuid());
    else
        doctor_add(d, DOCTOR_USER, DOCTOR_OK, "user id %u", getuid());
}

static void check_network(struct doctor *d)
{
    struct ifaddrs *all = NULL;
    char up[256] = "";
    if (getifaddrs(&all) != 0) {
        doctor_add(d, DOCTOR_NETWORK, DOCTOR_UNKNOWN, "the interfaces can not be listed: %s", strerror(errno));
        return;
    }
    for (struct ifaddrs *a = all; a; a = a->ifa_next) {
        bool inet = a->ifa_addr && (a->ifa_addr->sa_family == AF_INET || a->ifa_addr->sa_family == AF_INET6);
        size_t used = strlen(up);
        if (inet && (a->ifa_flags & IFF_UP) && !strstr(up, a->ifa_name))
            snprintf(up + used, sizeof up - used, "%s%s", used ? ", " : "", a->ifa_name);
    }
    freeifaddrs(all);
    if (*up)
        doctor_add(d, DOCTOR_NETWORK, DOCTOR_OK, "up: %s", up);
    else
        doctor_add(d, DOCTOR_NETWORK, DOCTOR_WARN, "no network interface with an address is up");
}

static bool can_write_shm(void)
{
    char name[64];
    snprintf(name, sizeof name, "/dev/shm/slipring-doctor-%d", (int)getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int error = errno;
    if (fd >= 0) {
        unlink(name);
        close(fd);
    }
    errno = error;
    return fd >= 0;
}

static void check_shm(struct doctor *d)
{
    struct statvfs s;
    char options[256];
    mount_options("/dev/shm", options, sizeof options);
    if (statvfs("/dev/shm", &s) != 0 || !can_write_shm()) {
        doctor_add(d, DOCTOR_SHM, DOCTOR_FAIL, "/dev/shm can not be used: %s%s", strerror(errno), options);
        return;
    }
    unsigned long long all = (unsigned long long)s.f_blocks * s.f_frsize,
                       left = (unsigned long long)s.f_bavail * s.f_frsize;
    doctor_add(d, DOCTOR_SHM, left < SHM_ENOUGH ? DOCTOR_WARN : DOCTOR_OK, "%llu MiB, %llu MiB of them free%s",
               all / MIB, left / MIB, options);
}

static const char *amount(rlim_t v, char *buf, size_t size)
{
    if (v == RLIM_INFINITY)
        snprintf(buf, size, "unlimited");
    else
        snprintf(buf, size, "%llu", (unsigned long long)v);
    return buf;
}

static void check_limits(struct doctor *d)
{
    struct rlimit files = {0}, locked = {0};
    char soft[32], hard[32], lock[32];
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_MEMLOCK, &locked);
    bool few = files.rlim_cur < FILES_ENOUGH, none = locked.rlim_cur == 0;
    doctor_add(d, DOCTOR_LIMITS, few || none ? DOCTOR_WARN : DOCTOR_OK,
               "open files %s (at most %s), locked memory %s%s", amount(files.rlim_cur, soft, sizeof soft),
               amount(files.rlim_max, hard, sizeof hard), amount(locked.rlim_cur, lock, sizeof lock),
               locked.rlim_cur == RLIM_INFINITY ? "" : " bytes");
}

void doctor_check_host(struct doctor *d)
{
    check_namespaces(d);
    check_proc(d);
    check_user(d);
    check_network(d);
    check_shm(d);
    check_limits(d);
}

/* Clients of the Multi-Process Service find its daemon by a pipe in a folder. */
void doctor_check_mps(struct doctor *d)
{
    const char *given = getenv("CUDA_MPS_PIPE_DIRECTORY"), *folder = given && *given ? given : "/tmp/nvidia-mps";
    char pipe_name[PATH_MAX];
    snprintf(pipe_name, sizeof pipe_name, "%s/control", folder);
    /* A pipe that nobody reads can not be opened for writing without waiting. */
    int fd = open(pipe_name, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (fd >= 0)
        doctor_add(d, DOCTOR_MPS, DOCTOR_OK, "its daemon runs (%s)", folder);
    else if (error == ENXIO)
        doctor_add(d, DOCTOR_MPS, DOCTOR_WARN, "%s is there, but no daemon reads it", pipe_name);
    else if (given && *given)
        doctor_add(d, DOCTOR_MPS, DOCTOR_WARN, "CUDA_MPS_PIPE_DIRECTORY=%s, but %s: %s", given, pipe_name,
                   strerror(error));
    else
        doctor_add(d, DOCTOR_MPS, DOCTOR_OK, "not in use");
}
