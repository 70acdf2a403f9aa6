/* SPDX-License-Identifier: Apache-2.0 */
/* slipring doctor's check rails, in roots with a /sys of their own. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/doctor/rails.h"

static char root[] = "/tmp/slipring-rails-XXXXXX";
static struct doctor_devices devices;
static struct doctor d;

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
    char command[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    cr_assert_eq(system(command), 0, "%s", command);
}

static void begin(void)
{
    cr_assert(mkdtemp(root));
    d.devices = &devices;
}

static void end(void)
{
    doctor_free(&d);
    shell("rm -r %s", root);
}

/* Both are below a bridge of the name. */
static void device(const char *bridge, const char *pci)
{
    char lower[32];
    snprintf(lower, sizeof lower, "%s", pci);
    for (char *c = lower; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    snprintf(devices.device[devices.count++].pci, sizeof devices.device[0].pci, "%s", pci);
    shell("mkdir -p %s/sys/devices/%s/%s %s/sys/bus/pci/devices", root, bridge, lower, root);
    shell("ln -s ../../../devices/%s/%s %s/sys/bus/pci/devices/", bridge, lower, root);
}

static void adapter(const char *bridge, const char *name, const char *state, const char *rate)
{
    shell("mkdir -p %s/sys/devices/%s/of-%s %s/sys/class/infiniband/%s/ports/1", root, bridge, name, root, name);
    shell("ln -s ../../../devices/%s/of-%s %s/sys/class/infiniband/%s/device", bridge, name, root, name);
    shell("echo '%s' >%s/sys/class/infiniband/%s/ports/1/state", state, root, name);
    shell("echo '%s' >%s/sys/class/infiniband/%s/ports/1/rate", rate, root, name);
}

static void expect(bool hosts, enum doctor_result r, const char *text)
{
    doctor_check_rails(&d, root, hosts);
    cr_assert_eq(d.findings, 1);
    cr_expect(d.finding[0].result == r && strstr(d.finding[0].text, text), "%s \"%s\"",
              doctor_result_name(d.finding[0].result), d.finding[0].text);
}

Test(rails, each_has_its_own, .init = begin, .fini = end)
{
    device("pci1/switch1", "0000:1A:00.0");
    device("pci1/switch2", "0000:2B:00.0");
    adapter("pci1/switch2", "mlx5_0", "4: ACTIVE", "400 Gb/sec (4X NDR)");
    adapter("pci1/switch1", "mlx5_1", "4: ACTIVE", "400 Gb/sec (4X NDR)");
    expect(true, DOCTOR_OK, "2 active adapters, 800 Gb/s together, for 2 devices");
}

Test(rails, one_is_the_nearest_of_both, .init = begin, .fini = end)
{
    device("pci1/switch1", "0000:1A:00.0");
    device("pci1/switch1", "0000:1B:00.0");
    adapter("pci1/switch1", "mlx5_0", "4: ACTIVE", "200 Gb/sec");
    adapter("pci9/switch1", "mlx5_1", "4: ACTIVE", "200 Gb/sec");
    expect(true, DOCTOR_WARN, "device 0 and device 1 have the same nearest adapter, mlx5_0");
}

/* As on a board where adapters are apart from the devices: which one NCCL takes is not to be seen here. */
Test(rails, all_are_as_near, .init = begin, .fini = end)
{
    device("pci1/switch1", "0000:1A:00.0");
    device("pci1/switch1", "0000:1B:00.0");
    adapter("pci2/switch1", "mlx5_0", "4: ACTIVE", "200 Gb/sec");
    adapter("pci2/switch1", "mlx5_1", "4: ACTIVE", "200 Gb/sec");
    expect(true, DOCTOR_OK, "2 active adapters");
}

Test(rails, too_few, .init = begin, .fini = end)
{
    device("pci1/switch1", "0000:1A:00.0");
    device("pci1/switch2", "0000:2B:00.0");
    adapter("pci1/switch1", "mlx5_0", "4: ACTIVE", "100 Gb/sec");
    adapter("pci1/switch2", "mlx5_1", "1: DOWN", "100 Gb/sec");
    expect(true, DOCTOR_WARN, "1 active adapter, 100 Gb/s together, for 2 devices");
}

Test(rails, none, .init = begin, .fini = end)
{
    device("pci1/switch1", "0000:1A:00.0");
    expect(true, DOCTOR_WARN, "goes over sockets");
}

Test(rails, nothing_is_asked_of_one_host, .init = begin, .fini = end)
{
    expect(false, DOCTOR_OK, "SLIPRING_HOSTS is off");
}
