/* The Multi-Process Service: its clients find the daemon by a pipe in a folder. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/doctor/doctor.h"

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
