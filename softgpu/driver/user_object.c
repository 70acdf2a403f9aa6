/* SPDX-License-Identifier: Apache-2.0 */
/* User objects: counted references that programs and graphs own. The destructor runs on a thread of the driver's own,
 * which must not be held up and must not call CUDA; references of an executable graph that go end with its launches. */
#include "sg.h"
#include <limits.h>
#include <signal.h>
#include <stdlib.h>

struct sg_object {
    CUuserObject handle;
    void *ptr;
    CUhostFn destroy;
    uint64_t owned;  /* by the program */
    uint64_t graphs; /* by graphs, executable ones, and launches that run */
    struct sg_object *next;
};
struct leaving { /* a graph, and with it its references, that ends when a launch has run */
    struct leaving *next;
    struct sg_graph *graph;
    struct sg_fence *after;
};

static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct sg_object *dying, **dying_end = &dying;
static struct leaving *leaving;
static bool has_thread;

/* ---- the thread of destructors ---- */

static void end_launches_locked(void)
{
    for (struct leaving **at = &leaving, *l; (l = *at);) {
        if (!l->after->done) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        sg_graph_destroy_locked(l->graph);
        sg_fence_put_locked(l->after);
        free(l);
    }
}

static void destroy_locked(struct sg_object *o)
{
    sg_release();
    sg_forbid_calls("the destructor of a user object");
    o->destroy(o->ptr);
    sg_forbid_calls(NULL);
    free(o);
    sg_acquire();
}

static void *run(void *unused)
{
    (void)unused;
    sg_acquire();
    for (;;) {
        end_launches_locked();
        struct sg_object *o = sg_exiting() ? NULL : dying;
        if (!o) {
            pthread_cond_wait(&wake, &sg_lock);
            continue;
        }
        if (!(dying = o->next))
            dying_end = &dying;
        destroy_locked(o);
    }
    return NULL;
}

static void wake_thread_locked(void)
{
    sigset_t all, old;
    pthread_t thread;

    pthread_cond_signal(&wake);
    if (has_thread)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&thread, NULL, run, NULL))
        abort();
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_detach(thread);
    has_thread = true;
}

void sg_objects_fence_done_locked(void)
{
    if (leaving)
        pthread_cond_signal(&wake);
}

/* ---- references ---- */

static void check_end_locked(struct sg_object *o)
{
    if (o->owned || o->graphs)
        return;
    sg_handle_drop_locked(o->handle);
    o->next = NULL;
    *dying_end = o;
    dying_end = &o->next;
    wake_thread_locked();
}

void sg_objects_drop_locked(struct sg_graph *g)
{
    for (struct sg_object_refs *r = g->objects, *next; r; r = next) {
        next = r->next;
        r->object->graphs -= r->count;
        check_end_locked(r->object);
        free(r);
    }
    g->objects = NULL;
}

void sg_graph_leave_locked(struct sg_graph *g, struct sg_fence *after)
{
    if (!after || after->done) {
        sg_graph_destroy_locked(g);
        return;
    }
    struct leaving *l = calloc(1, sizeof(*l));
    if (!l)
        abort();
    *l = (struct leaving){leaving, g, sg_fence_ref_locked(after)};
    leaving = l;
    wake_thread_locked();
}

static struct sg_object_refs **find_refs(struct sg_graph *g, const struct sg_object *o)
{
    struct sg_object_refs **at = &g->objects;

    while (*at && (*at)->object != o)
        at = &(*at)->next;
    return at;
}

static void add_refs_locked(struct sg_graph *g, struct sg_object *o, unsigned count)
{
    struct sg_object_refs **at = find_refs(g, o);

    if (!*at) {
        *at = calloc(1, sizeof(**at));
        if (!*at)
            abort();
        (*at)->object = o;
    }
    (*at)->count += count;
    o->graphs += count;
}

void sg_objects_copy_locked(struct sg_graph *to, const struct sg_graph *from)
{
    for (const struct sg_object_refs *r = from->objects; r; r = r->next)
        add_refs_locked(to, r->object, r->count);
}

/* ---- calls ---- */

static bool is_count(unsigned n)
{
    return n && n <= INT_MAX;
}

CUresult CUDAAPI cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount,
                                    unsigned int flags)
{
    SG_ENTER(cuUserObjectCreate);
    if (!object_out || !destroy || !is_count(initialRefcount) || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_object *o = calloc(1, sizeof(*o));
    if (!o)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_acquire();
    *o = (struct sg_object){.ptr = ptr, .destroy = destroy, .owned = initialRefcount};
    *object_out = o->handle = sg_handle_new_locked(SG_OBJECT, o);
    sg_release();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    SG_ENTER(cuUserObjectRetain);
    if (!is_count(count))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_object *o = sg_handle_get_locked(SG_OBJECT, object);
    if (o)
        o->owned += count;
    sg_release();
    return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Whether the program owns so many references. */
static bool owns_locked(const struct sg_object *o, unsigned count, const char *call)
{
    if (o->owned >= count)
        return true;
    sg_misuse("%s: %u references to user object %p, of which the program owns %lu", call, count, (void *)o->handle,
              o->owned);
    return false;
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    SG_ENTER(cuUserObjectRelease);
    if (!is_count(count))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_object *o = sg_handle_get_locked(SG_OBJECT, object);
    bool ok = o && owns_locked(o, count, "cuUserObjectRelease");
    if (ok) {
        o->owned -= count;
        check_end_locked(o);
    }
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
    bool move = flags & CU_GRAPH_USER_OBJECT_MOVE;

    SG_ENTER(cuGraphRetainUserObject);
    if (!is_count(count) || flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, graph);
    struct sg_object *o = g ? sg_handle_get_locked(SG_OBJECT, object) : NULL;
    bool ok = o && (!move || owns_locked(o, count, "cuGraphRetainUserObject, moving"));
    if (ok) {
        add_refs_locked(g, o, count);
        o->owned -= move ? count : 0;
    }
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    SG_ENTER(cuGraphReleaseUserObject);
    if (!is_count(count))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, graph);
    struct sg_object *o = g ? sg_handle_get_locked(SG_OBJECT, object) : NULL;
    struct sg_object_refs **at = o ? find_refs(g, o) : NULL, *r = at ? *at : NULL;
    bool ok = r && r->count >= count;
    if (ok) {
        r->count -= count;
        o->graphs -= count;
        if (!r->count) {
            *at = r->next;
            free(r);
        }
        check_end_locked(o);
    }
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
