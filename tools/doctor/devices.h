/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver (and NVML, when it is there) says about the devices. Filled by a child, in memory
 * shared with it. */
#ifndef SLR_TOOLS_DOCTOR_DEVICES_H
#define SLR_TOOLS_DOCTOR_DEVICES_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define DOCTOR_MAX_DEVICES 32 /* the first so many are looked at */

struct doctor_device {
    char name[96], pci[32]; /* pci: domain:bus:device.function, as CUDA and NVML write it */
    int major, minor, compute_mode, memops, copy_engines;
    bool vmm; /* virtual memory that can be exported as a descriptor */
    uint64_t bytes;
};

/* What lies between two devices, as NVML names it; the worst that a transfer crosses. */
enum doctor_path {
    DOCTOR_PATH_UNKNOWN,
    DOCTOR_PATH_BOARD,
    DOCTOR_PATH_SWITCH,
    DOCTOR_PATH_SWITCHES,
    DOCTOR_PATH_BRIDGE,
    DOCTOR_PATH_NODE,
    DOCTOR_PATH_SYSTEM
};

struct doctor_link {
    bool access;     /* the row's device can reach the column's memory */
    uint8_t nvlinks; /* how many; 0: none, or not known */
    int8_t rank;     /* CUDA's performance rank, 0 the best; -1: not known */
    uint8_t path;    /* enum doctor_path */
};

struct doctor_devices {
    char step[48]; /* the function that is being called: for one that never returns */
    char file[512], load_error[512], missing[1024];
    bool loaded, softgpu, nvml;
    int version;                /* as cuDriverGetVersion: 13000 */
    char failed[48], error[64]; /* the function that failed, and CUDA's name of the error; "": none */
    int count;                  /* of the devices; -1: not known */
    struct doctor_device device[DOCTOR_MAX_DEVICES];
    struct doctor_link link[DOCTOR_MAX_DEVICES][DOCTOR_MAX_DEVICES];
};

/* Devices that are described. */
static inline int doctor_known_devices(const struct doctor_devices *v)
{
    return v->count < 0 ? 0 : v->count < DOCTOR_MAX_DEVICES ? v->count : DOCTOR_MAX_DEVICES;
}

/* NVML's part: NVLinks and paths. Called in the child. */
void doctor_ask_nvml(struct doctor_devices *v);

#endif
