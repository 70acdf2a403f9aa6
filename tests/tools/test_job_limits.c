/* SPDX-License-Identifier: Apache-2.0 */
/* slipring doctor's checks memory_limit and frozen, in roots with a /proc and a /sys of their own. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/doctor/cgroup.h"

#define V1 "/sys/fs/cgroup/memory/docker/abc"
#define V2 "/sys/fs/cgroup"

static char root[] = "/tmp/slipring-cgroup-XXXXXX";
static struct doctor_devices devices;
static struct doctor d;

/* A file of the root, and the folders that it is in. */
static void file(const char *path, const char *text)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s", root, path);
    for (char *slash = name + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(name, 0700);
    }
    FILE *f = fopen(name, "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", name);
}

static void begin(void)
{
    cr_assert(mkdtemp(root));
    devices.count = 2;
    d.devices = &devices;
}

static void end(void)
{
    char command[64];
    doctor_free(&d);
    snprintf(command, sizeof command, "rm -r %s", root);
    cr_assert_eq(system(command), 0);
}

/* The only finding of a check. */
static const struct doctor_finding *only(enum doctor_id id)
{
    const struct doctor_finding *f = NULL;
    for (size_t i = 0; i < d.findings; i++)
        if (d.finding[i].id == id) {
            cr_assert_null(f, "twice: %s", d.finding[i].text);
            f = &d.finding[i];
        }
    cr_assert_not_null(f);
    return f;
}

static void expect(enum doctor_id id, enum doctor_result r, const char *text)
{
    for (size_t i = 0; i < d.findings; i++)
        if (d.finding[i].id == id && d.finding[i].result == r && strstr(d.finding[i].text, text))
            return;
    cr_expect(false, "no finding %s \"%s\"; the first: %s", doctor_result_name(r), text, d.finding[0].text);
}

/* Version 1, as docker shows it: the process's paths are the host's, and the container's group is what is mounted. */
static void old_host(const char *limit, const char *usage)
{
    file("/proc/self/cgroup",
         "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n6:freezer:/docker/abc\n0::/docker/abc\n");
    file("/proc/self/mountinfo",
         "23 1 0:20 / /proc rw shared:1 - proc proc rw\n"
         "35 31 0:32 /docker /sys/fs/cgroup/memory/docker rw,relatime - cgroup cgroup rw,memory\n"
         "37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime shared:7 master:2 - cgroup cgroup rw,freezer\n"
         "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
    file("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "9223372036854771712\n");
    file("/sys/fs/cgroup/memory/docker/memory.usage_in_bytes", "1\n");
    file(V1 "/memory.limit_in_bytes", limit);
    file(V1 "/memory.usage_in_bytes", usage);
    file(V1 "/memory.stat", "cache 5\ninactive_file 1\ntotal_inactive_file 1073741824\ntotal_active_file 2147483648\n");
    file(V1 "/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
}

/* Version 2, with a group inside of another one. */
static void new_host(const char *max, const char *outer_max)
{
    file("/proc/self/cgroup", "0::/slurm/job_7\n");
    file("/proc/self/mountinfo",
         "30 23 0:26 / " V2 " rw shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n");
    file(V2 "/slurm/job_7/memory.max", max);
    file(V2 "/slurm/job_7/memory.high", "max\n");
    file(V2 "/slurm/job_7/memory.current", "1048576\n");
    file(V2 "/slurm/job_7/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n");
    file(V2 "/slurm/memory.max", outer_max);
    file(V2 "/slurm/memory.current", "1048576\n");
}

static void process(const char *pid, const char *path)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/%s/cgroup", pid);
    file(name, path);
    snprintf(name, sizeof name, "/proc/%s/comm", pid);
    file(name, "python3\n");
}

TestSuite(job_limits, .init = begin, .fini = end);

Test(job_limits, nothing_to_be_seen)
{
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_OK, "no control group");
    expect(DOCTOR_FROZEN, DOCTOR_OK, "no process");
}

Test(job_limits, v1_without_a_limit)
{
    old_host("9223372036854771712\n", "99999999999\n");
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_OK, "no limit is to be seen from here (" V1 ")");
    cr_expect_eq(only(DOCTOR_MEMORY_LIMIT)->result, DOCTOR_OK);
}

/* 8 GiB, 7 used, 3 of them the pages of files. */
Test(job_limits, v1_files_do_not_count)
{
    old_host("8589934592\n", "7516192768\n");
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_OK, "8192 MiB for all processes of " V1 " together, 4096 MiB of them free");
}

Test(job_limits, v1_too_little_for_the_devices)
{
    devices.count = 8;
    old_host("8589934592\n", "7516192768\n");
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_WARN, "4096 MiB of them free: less than 1 GiB for each of 8 devices");
}

/* More used than allowed is no room, not a wrapped number. */
Test(job_limits, v1_over_the_limit)
{
    old_host("4194304\n", "9663676416\n");
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_WARN, "4 MiB for all processes of " V1 " together, 0 MiB of them free");
}

Test(job_limits, v1_killed_and_stopped)
{
    old_host("8589934592\n", "4\n");
    file(V1 "/memory.oom_control", "oom_kill_disable 1\nunder_oom 0\noom_kill 3\n");
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_OK, "8192 MiB");
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_WARN, "has ended 3 processes of " V1);
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_WARN, "is stopped, not ended");
}

Test(job_limits, v1_root_stops_nobody)
{
    old_host("9223372036854771712\n", "4\n");
    file(V1 "/memory.oom_control", "oom_kill_disable 1\nunder_oom 0\n");
    doctor_check_cgroups(&d, root);
    cr_expect_eq(only(DOCTOR_MEMORY_LIMIT)->result, DOCTOR_OK);
}

Test(job_limits, v2_the_outer_group_is_the_smaller)
{
    new_host("max\n", "1074790400\n");
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_WARN,
           "1025 MiB for all processes of " V2 "/slurm together, 1024 MiB of them free: less than 1 GiB for each of 2");
}

Test(job_limits, v2_high_is_a_limit)
{
    new_host("68719476736\n", "max\n");
    file(V2 "/slurm/job_7/memory.high", "34359738368\n");
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_OK, "32768 MiB for all processes of " V2 "/slurm/job_7 together, 32767 MiB");
}

Test(job_limits, v2_killed)
{
    new_host("max\n", "max\n");
    file(V2 "/slurm/job_7/memory.events", "oom 9\noom_kill 2\n");
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_OK, "no limit is to be seen from here (" V2 "/slurm/job_7)");
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_WARN, "has ended 2 processes");
}

/* In a namespace of control groups its own is the root, and what others' paths lead to is not there. */
Test(job_limits, v2_in_a_namespace)
{
    new_host("max\n", "max\n");
    file("/proc/self/cgroup", "0::/\n");
    file(V2 "/memory.max", "1073741824\n");
    file(V2 "/memory.current", "0\n");
    process("17", "0::/../other\n");
    file(V2 "/cgroup.events", "populated 1\nfrozen 1\n");
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_WARN, "1024 MiB for all processes of " V2 " together, 1024 MiB of them free");
    expect(DOCTOR_FROZEN, DOCTOR_OK, "no process");
}

Test(job_limits, v2_frozen)
{
    new_host("max\n", "max\n");
    process("17", "0::/slurm/job_7\n");
    process("23", "0::/docker/abc\n");
    process("24", "0::/docker/abc\n");
    file(V2 "/slurm/job_7/cgroup.events", "populated 1\nfrozen 0\n");
    file(V2 "/docker/abc/cgroup.events", "populated 1\nfrozen 1\n");
    doctor_check_cgroups(&d, root);
    cr_expect_eq(only(DOCTOR_FROZEN)->result, DOCTOR_WARN);
    expect(DOCTOR_FROZEN, DOCTOR_WARN, "2 processes of this user, e.g. 2");
    expect(DOCTOR_FROZEN, DOCTOR_WARN, "(python3) in " V2 "/docker/abc: ");
}

/* Version 1 is where the freezer is; the group of version 2 says nothing. */
Test(job_limits, v1_frozen)
{
    old_host("8589934592\n", "4\n");
    process("23", "6:freezer:/slurm/job_8\n0::/docker/abc\n");
    process("24", "6:freezer:/docker/abc\n0::/docker/abc\n");
    file("/sys/fs/cgroup/freezer/slurm/job_8/freezer.state", "FREEZING\n");
    file("/sys/fs/cgroup/freezer/docker/abc/freezer.state", "THAWED\n");
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_FROZEN, DOCTOR_WARN,
           "1 process of this user, e.g. 23 (python3) in /sys/fs/cgroup/freezer/slurm/job_8: ");
}

Test(job_limits, others_are_not_named)
{
    if (geteuid() != 0)
        cr_skip_test("only root can give files away");
    old_host("8589934592\n", "4\n");
    process("23", "6:freezer:/slurm/job_8\n");
    file("/sys/fs/cgroup/freezer/slurm/job_8/freezer.state", "FROZEN\n");
    char name[64];
    snprintf(name, sizeof name, "%s/proc/23", root);
    cr_assert_eq(chown(name, 12345, 12345), 0);
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_FROZEN, DOCTOR_OK, "no process");
}

/* What is no file of the kernel's is no reason to go wrong. */
Test(job_limits, noise)
{
    file("/proc/self/cgroup", "x\n:\n::\n4:memory:\n0\n");
    file("/proc/self/mountinfo", "x\n - \n1 2 3 - cgroup\n35 31 0:32 / /m rw - cgroup cgroup rw,memory\n");
    file("/m/memory.limit_in_bytes", "much\n");
    file("/m/memory.usage_in_bytes", "");
    file("/m/memory.stat", "total_inactive_file many\n");
    file("/m/memory.oom_control", "");
    doctor_check_cgroups(&d, root);
    expect(DOCTOR_MEMORY_LIMIT, DOCTOR_OK, "no limit is to be seen from here (/m)");
}
