/* SPDX-License-Identifier: Apache-2.0 */
/* NVML with as much as `slipring doctor` asks. FAKE_LINK: nv (4 NVLinks to the peer, 2 elsewhere), switch (6 NVLinks to
 * a switch), sys (PCIe through the host). Devices are known by the bus numbers of the fake driver. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device);
int nvmlDeviceGetP2PStatus(void *a, void *b, int index, int *status);
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active);
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, void *pci);

static int link_is(const char *what)
{
    const char *link = getenv("FAKE_LINK");
    return link && strcmp(link, what) == 0;
}

EXPORT int nvmlInit_v2(void)
{
    return 0;
}

EXPORT int nvmlShutdown(void)
{
    return 0;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device)
{
    unsigned bus = 0;
    if (sscanf(id, "0000:%x:", &bus) != 1)
        return 2;
    *device = (void *)(uintptr_t)bus;
    return 0;
}

EXPORT int nvmlDeviceGetP2PStatus(void *a, void *b, int index, int *status)
{
    (void)a;
    (void)b;
    *status = index == 2 && !link_is("sys") ? 0 : 5;
    return 0;
}

EXPORT int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level)
{
    (void)a;
    (void)b;
    *level = 50;
    return 0;
}

EXPORT int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active)
{
    (void)device;
    if (link >= 6)
        return 2;
    *active = 1;
    return 0;
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type)
{
    (void)device;
    (void)link;
    *type = link_is("switch") ? 2 : 0;
    return 0;
}

/* Links 0 to 3 lead to the other of two devices. */
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, void *pci)
{
    struct {
        char legacy[16];
        unsigned domain, bus, device;
    } at = {.bus = link < 4 ? (unsigned)((uintptr_t)device ^ 1) : 99};
    memcpy(pci, &at, sizeof at);
    return 0;
}
