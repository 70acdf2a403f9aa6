/* SPDX-License-Identifier: Apache-2.0 */
/* Environment of the stand-in driver; documented in ../README.md. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

struct sg_config sg_cfg;

static double number(const char *name, double fallback)
{
    const char *s = getenv(name);
    char *end;
    if (!s || !*s)
        return fallback;
    double v = strtod(s, &end);
    return end == s || *end || v < 0 ? fallback : v;
}

/* A strict rule: on or off by default, off with 0. */
static bool rule(const char *name, bool fallback)
{
    return number(name, fallback) != 0;
}

static unsigned connections(void)
{
    double n = number("CUDA_DEVICE_MAX_CONNECTIONS", 8);
    return n > SG_CONNECTIONS ? SG_CONNECTIONS : n >= 1 ? (unsigned)n : 8;
}

static bool is(const char *name, const char *value)
{
    const char *s = getenv(name);
    return s && !strcmp(s, value);
}

void sg_config_load(void)
{
    int devices = (int)number("SOFTGPU_DEVICES", 8);
    double scale = number("SOFTGPU_TIME_SCALE", 1);
    const char *report = getenv("SOFTGPU_REPORT");

    free((void *)sg_cfg.report); /* of a cuInit that failed */
    sg_cfg = (struct sg_config){
        .devices = devices < SG_MAX_DEVICES ? devices : SG_MAX_DEVICES,
        .mem_bytes = (size_t)number("SOFTGPU_MEM_BYTES", 16.0 * (1 << 30)),
        .misuse_abort = is("SOFTGPU_MISUSE", "abort"),
        .hang_abort = is("SOFTGPU_HANG", "abort"),
        .timing = is("SOFTGPU_TIMING", "1"),
        .compute_off = is("SOFTGPU_COMPUTE", "0"),
        .report = report && *report ? strdup(report) : NULL,
        .link_gbs = number("SOFTGPU_LINK_GBS", 450),
        .net_gbs = number("SOFTGPU_NET_GBS", 0),
        .hbm_gbs = number("SOFTGPU_HBM_GBS", 3350),
        .pcie_gbs = number("SOFTGPU_PCIE_GBS", 55),
        .tflops = number("SOFTGPU_TFLOPS", 700),
        .collective_share = number("SOFTGPU_COLLECTIVE_SHARE", 0.12),
        .launch_us = number("SOFTGPU_LAUNCH_US", 3),
        .memop_us = number("SOFTGPU_MEMOP_US", 1),
        .scale = scale > 0 ? scale : 1,
        .queue = (unsigned)number("SOFTGPU_QUEUE", 1000),
        .launches = (unsigned)number("SOFTGPU_QUEUE_LAUNCHES", 511),
        .connections = connections(),
        .ties = rule("SOFTGPU_TIES", true),
        .lazy = rule("SOFTGPU_LAZY", true) && !is("CUDA_MODULE_LOADING", "EAGER"),
        .nccl_blind = rule("SOFTGPU_NCCL_BLIND", true),
        .same_primary = rule("SOFTGPU_SAME_PRIMARY", true),
        .green_events = rule("SOFTGPU_GREEN_EVENTS", true),
        .same_stream = rule("SOFTGPU_SAME_STREAM", false),
        .ctxsync = rule("SOFTGPU_CTXSYNC", true),
        .books = rule("SOFTGPU_BOOKS", true),
        .gemms_full = rule("SOFTGPU_GEMMS_FULL", false),
        .one_lane = (unsigned)number("SOFTGPU_GRAPH_ONE_LANE", 0),
        .p2p_broken = rule("SOFTGPU_P2P_BROKEN", false),
    };
    sg_cfg.hang_seconds = number("SOFTGPU_HANG_SECONDS", 30) * (sg_cfg.timing ? sg_cfg.scale : 1);
}
