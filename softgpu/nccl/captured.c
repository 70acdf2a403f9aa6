/* SPDX-License-Identifier: Apache-2.0 */
/* Launches that are captured. As in NCCL (strongstream.cc there), all work of a communicator is in one order, in graphs
 * and outside of them: a graph waits for an event of the communicator's before its first kernel of it and records it
 * behind each, as external event nodes; what is launched outside does the same once anything was captured. Within one
 * capture the kernels follow one another by way of a stream of the communicator's own.
 *
 * Bodies of conditional nodes take no event nodes. With NCCL_GRAPH_MIXING_SUPPORT=0 there are none: captured kernels have
 * the order that the program gives them. */
#include "comm.h"

#include <stdlib.h>
#include <time.h>

struct capture {
    struct capture *next;
    cuuint64_t id;
    CUstream stream;
};

CUresult captured_on(CUstream stream, struct captured *c)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    *c = (struct captured){.graph = NULL};
    CUresult rc = softdrv_get()->cuStreamGetCaptureInfo(stream, &status, &c->id, &c->graph, NULL, NULL, NULL);
    if (rc == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        c->graph = NULL; /* the launch says what is wrong with one that was broken */
    return rc;
}

int captures_are_ordered(void)
{
    const char *mixing = getenv("NCCL_GRAPH_MIXING_SUPPORT");
    return !(mixing && mixing[0] == '0' && !mixing[1]);
}

CUresult stream_after(CUstream to, CUstream from)
{
    const struct softdrv *drv = softdrv_get();
    CUevent event;
    CUresult rc = drv->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (rc != CUDA_SUCCESS)
        return rc;
    if ((rc = drv->cuEventRecord(event, from)) == CUDA_SUCCESS)
        rc = drv->cuStreamWaitEvent(to, event, 0);
    drv->cuEventDestroy(event);
    return rc;
}

/* The first capture of all: what is launched from now on meets the event. */
static CUresult make_order(struct capture_order *o)
{
    const struct softdrv *drv = softdrv_get();
    CUevent serial;
    CUresult rc = o->serial ? CUDA_SUCCESS : drv->cuStreamCreate(&o->live, CU_STREAM_NON_BLOCKING);
    if (o->serial || rc != CUDA_SUCCESS)
        return rc;
    rc = drv->cuEventCreate(&serial, CU_EVENT_DISABLE_TIMING);
    if (rc == CUDA_SUCCESS && (rc = drv->cuEventRecord(serial, o->live)) == CUDA_SUCCESS)
        o->serial = serial;
    return rc;
}

/* The communicator's stream becomes part of the capture, with no dependency but the event. */
static CUresult enter_capture(struct capture_order *o, struct captured *c, CUstream origin)
{
    const struct softdrv *drv = softdrv_get();
    CUresult rc = stream_after(c->stream, origin);
    if (rc == CUDA_SUCCESS)
        rc = drv->cuStreamUpdateCaptureDependencies(c->stream, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    return rc == CUDA_SUCCESS ? drv->cuStreamWaitEvent(c->stream, o->serial, CU_EVENT_WAIT_EXTERNAL) : rc;
}

static int is_over(CUstream stream)
{
    struct captured c;
    return captured_on(stream, &c) != CUDA_SUCCESS || !c.graph;
}

/* The entry of this capture; else that of one that is over, or a new one. */
static struct capture *entry_of(struct capture_order *o, cuuint64_t id, int *known)
{
    struct capture *over = NULL;
    for (struct capture *at = o->captures; at; at = at->next) {
        if (at->id == id) {
            *known = 1;
            return at;
        }
        if (is_over(at->stream))
            over = at;
    }
    *known = 0;
    if (!over && (over = calloc(1, sizeof *over))) {
        if (softdrv_get()->cuStreamCreate(&over->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
            free(over);
            return NULL;
        }
        over->next = o->captures;
        o->captures = over;
    }
    return over;
}

CUresult capture_order_before(struct ncclComm *comm, struct captured *c, CUstream stream)
{
    struct capture_order *o = &comm->order;
    int known;
    CUresult rc = CUDA_SUCCESS;
    if (!c->graph) {
        if (o->serial && (rc = softdrv_get()->cuStreamWaitEvent(o->live, o->serial, 0)) == CUDA_SUCCESS)
            rc = stream_after(stream, o->live);
        return rc;
    }
    if (!captures_are_ordered())
        return CUDA_SUCCESS;
    if ((rc = make_order(o)) != CUDA_SUCCESS)
        return rc;
    struct capture *entry = entry_of(o, c->id, &known);
    if (!entry)
        return CUDA_ERROR_OUT_OF_MEMORY;
    c->stream = entry->stream;
    if (!known && (rc = enter_capture(o, c, stream)) != CUDA_SUCCESS)
        return rc;
    entry->id = c->id;
    return stream_after(stream, c->stream);
}

/* A node made by hand, which the capture's end does not want to see joined. */
static CUresult record_in_graph(const struct captured *c, CUevent event)
{
    const struct softdrv *drv = softdrv_get();
    CUstreamCaptureStatus status;
    const CUgraphNode *deps;
    CUgraphNode node;
    size_t n = 0;
    CUresult rc = drv->cuGraphAddEventRecordNode(&node, c->graph, NULL, 0, event);
    if (rc == CUDA_SUCCESS)
        rc = drv->cuStreamGetCaptureInfo(c->stream, &status, NULL, NULL, &deps, NULL, &n);
    for (size_t i = 0; i < n && rc == CUDA_SUCCESS; i++)
        rc = drv->cuGraphAddDependencies(c->graph, &deps[i], &node, NULL, 1);
    if (rc == CUDA_SUCCESS)
        rc = drv->cuStreamUpdateCaptureDependencies(c->stream, &node, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    return rc;
}

CUresult capture_order_after(struct ncclComm *comm, const struct captured *c, CUstream stream)
{
    struct capture_order *o = &comm->order;
    CUresult rc = CUDA_SUCCESS;
    if (c->graph && !captures_are_ordered())
        return CUDA_SUCCESS;
    if (c->graph) {
        rc = stream_after(c->stream, stream);
        return rc == CUDA_SUCCESS ? record_in_graph(c, o->serial) : rc;
    }
    if (o->serial && (rc = stream_after(o->live, stream)) == CUDA_SUCCESS)
        rc = softdrv_get()->cuEventRecord(o->serial, o->live);
    return rc;
}

void capture_order_end(struct ncclComm *comm)
{
    const struct softdrv *drv = softdrv_get();
    struct capture_order *o = &comm->order;
    if (o->serial && !comm->in_graphs) /* else it is in their nodes */
        drv->cuEventDestroy(o->serial);
    if (o->live)
        drv->cuStreamDestroy(o->live);
    for (struct capture *next; o->captures; o->captures = next) {
        next = o->captures->next;
        drv->cuStreamDestroy(o->captures->stream);
        free(o->captures);
    }
    *o = (struct capture_order){.captures = NULL};
}

CUresult captured_keep(const struct captured *c, void (*gone)(void *arg), void *arg)
{
    const struct softdrv *drv = softdrv_get();
    CUuserObject object;
    CUresult rc = drv->cuUserObjectCreate(&object, arg, gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    return rc == CUDA_SUCCESS ? drv->cuGraphRetainUserObject(c->graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) : rc;
}

#define LONG_WAIT_SECONDS 10

static int rule_is_off(void)
{
    const char *rule = getenv("SOFTGPU_NCCL_GRAPHS");
    return rule && rule[0] == '0' && !rule[1];
}

void comm_wait_for_graphs(struct ncclComm *comm, const char *call)
{
    struct timespec until;
    int told = rule_is_off();
    if (told)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONG_WAIT_SECONDS;
    pthread_mutex_lock(&comm->lock);
    while (comm->in_graphs) {
        if (told)
            pthread_cond_wait(&comm->changed, &comm->lock);
        else if (pthread_cond_timedwait(&comm->changed, &comm->lock, &until) && comm->in_graphs) {
            told = 1;
            nccl_misuse(ncclInvalidUsage, "%s : waits until %d captured operations of the communicator are in no graph",
                        call, comm->in_graphs);
        }
    }
    pthread_mutex_unlock(&comm->lock);
}
