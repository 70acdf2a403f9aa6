/* SPDX-License-Identifier: Apache-2.0 */
/* Which graphs hold gathers, and what a launch counts. */
#include <criterion/criterion.h>
#include "plugin/comm/comm.h"
#include "plugin/graphs/graphs.h"
#include "plugin/graphs/recorded.h"
#include "plugin/util/process.h"

static struct slr_comm comms[2];
static uint32_t counted[2];
static bool ended[2], off, held[2], uncounted[2];

struct slr_comm *slr_comm_find_id(const struct slr_label *id, int rank)
{
    for (int i = 0; i < 2; i++)
        if (!ended[i] && comms[i].rank == rank && memcmp(&comms[i].id, id, sizeof *id) == 0)
            return &comms[i];
    return NULL;
}

void slr_comm_put(struct slr_comm *c)
{
    (void)c;
}

bool slr_process_off(void)
{
    return off;
}

/* Of the ring's calls graphs hold none here. */
void slr_recorded_empty(struct slr_graph_page *page)
{
    (void)page;
}

void slr_recorded_take(struct slr_graph_page *to, const struct slr_graph_page *from, CUgraph graph, CUgraphNode child)
{
    (void)to, (void)from, (void)graph, (void)child;
}

void slr_recorded_update(struct slr_graph_page *to, const struct slr_graph_page *from)
{
    (void)to, (void)from;
}

bool slr_recorded_without(struct slr_graph_page *page, CUgraphNode node)
{
    (void)page, (void)node;
    return false;
}

static CUgraph graph(uintptr_t n)
{
    return (CUgraph)n;
}

static CUgraphExec exec(uintptr_t n)
{
    return (CUgraphExec)n;
}

static CUgraphNode node_of(uintptr_t inner)
{
    return (CUgraphNode)inner;
}

static CUresult embedded(CUgraphNode node, CUgraph *inner)
{
    *inner = (CUgraph)node;
    return CUDA_SUCCESS;
}

/* What the executable graph runs; of a graph: what one that is made of it does. */
static void runs(CUgraphExec e, uint32_t first, uint32_t second)
{
    struct slr_graph_holds holds = {.at = 0};
    counted[0] = counted[1] = 0;
    uncounted[0] = uncounted[1] = held[0] = held[1] = false;
    for (struct slr_comm *c; (c = slr_graph_next_comm(e, &holds)) != NULL;) {
        cr_assert(!held[c - comms]);
        held[c - comms] = true;
        counted[c - comms] += holds.gathers;
        uncounted[c - comms] |= holds.uncounted;
    }
    cr_assert(counted[0] == first && counted[1] == second, "%u and %u gathers", counted[0], counted[1]);
}

static void holds(CUgraph g, uint32_t first, uint32_t second)
{
    slr_graph_instantiated(exec(9999), g, CUDA_SUCCESS);
    runs(exec(9999), first, second);
    slr_graph_exec_ends(exec(9999));
}

/* Exactly these, of the first communicator. */
static void may_run(CUgraphExec e, bool some, uint32_t gathers, bool others)
{
    runs(e, gathers, 0);
    cr_assert(held[0] == some && uncounted[0] == others && !held[1]);
}

static void may_hold(CUgraph g, bool some, uint32_t gathers, bool others)
{
    slr_graph_instantiated(exec(9999), g, CUDA_SUCCESS);
    may_run(exec(9999), some, gathers, others);
    slr_graph_exec_ends(exec(9999));
}

static void setup(void)
{
    for (int i = 0; i < 2; i++) {
        memset(&comms[i].id, 0x40 + i, sizeof comms[i].id);
        comms[i].rank = i;
    }
    slr_real.cuGraphChildGraphNodeGetGraph = embedded;
}

TestSuite(graphs, .init = setup);

Test(graphs, a_launch_counts_what_was_captured)
{
    cr_assert(!slr_graphs_any());
    slr_graph_hold(graph(1), &comms[0], 1);
    slr_graph_hold(graph(1), &comms[0], 1);
    slr_graph_hold(graph(1), &comms[1], 1);
    cr_assert(slr_graphs_any() && atomic_load(&slr_graphs_held) == 2);
    holds(graph(1), 2, 1);
    runs(exec(1), 0, 0);
    slr_graph_instantiated(exec(1), graph(1), CUDA_SUCCESS);
    cr_assert(slr_graph_ends(graph(1))); /* it may go when it has been instantiated */
    runs(exec(1), 2, 1);
    holds(graph(1), 0, 0);
    ended[0] = true; /* a graph may outlive a communicator */
    runs(exec(1), 0, 1);
    cr_assert_null(slr_graph_exec_ends(exec(1)));
    runs(exec(1), 0, 0);
    cr_assert(!slr_graphs_any() && atomic_load(&slr_graphs_held) == 0);
}

Test(graphs, a_copy_replaces_and_a_child_adds)
{
    for (uintptr_t n = 1; n <= 600; n++) /* more than there are buckets */
        slr_graph_hold(graph(n), &comms[n % 2], 1);
    slr_graph_instantiated(exec(1), graph(2), CUDA_SUCCESS);
    runs(exec(1), 1, 0);
    slr_graph_child_added(graph(2), graph(4), node_of(1004));
    slr_graph_launch_captured(graph(2), exec(1));
    slr_graph_child_added(graph(2), graph(5), node_of(1005));
    holds(graph(2), 3, 1);
    runs(exec(1), 1, 0); /* that was before */
    slr_graph_updated(exec(1), graph(2));
    runs(exec(1), 3, 1);
    slr_graph_updated(exec(1), graph(1000)); /* to one without gathers */
    runs(exec(1), 0, 0);
    slr_graph_cloned(graph(700), graph(2));
    holds(graph(700), 3, 1);
    slr_graph_instantiated(exec(3), graph(3), CUDA_ERROR_INVALID_VALUE);
    runs(exec(3), 0, 0);
    for (uintptr_t n = 1; n <= 700; n++)
        cr_assert(slr_graph_ends(graph(n)));
    slr_graph_exec_ends(exec(1));
    cr_assert(!slr_graphs_any() && atomic_load(&slr_graphs_held) == 0);
}

Test(graphs, a_name_that_comes_again_is_forgotten_before)
{
    slr_graph_hold(graph(1), &comms[0], 1);
    slr_graph_made(graph(1)); /* a new one of that name begins */
    slr_graph_hold(graph(1), &comms[1], 1);
    holds(graph(1), 0, 1);
    slr_graph_instantiated(exec(1), graph(1), CUDA_SUCCESS);
    slr_graph_instantiated(exec(1), graph(2), CUDA_SUCCESS);
    runs(exec(1), 0, 0);
}

Test(graphs, no_graph_holds_nothing)
{
    slr_graph_hold(graph(0), &comms[0], 1);
    slr_graph_hold(graph(1), &comms[0], 1);
    slr_graph_child_added(graph(0), graph(1), node_of(2));
    slr_graph_instantiated(exec(1), graph(0), CUDA_SUCCESS);
    runs(exec(1), 0, 0);
    slr_graph_instantiated(exec(1), graph(1), CUDA_SUCCESS);
    off = true; /* a child after fork */
    runs(exec(1), 0, 0);
}

Test(graphs, other_operations_are_held_and_not_counted)
{
    slr_graph_hold(graph(1), &comms[0], 0);
    may_hold(graph(1), true, 0, false);
    slr_graph_hold(graph(1), &comms[0], 1);
    may_hold(graph(1), true, 1, false);
}

Test(graphs, what_a_body_gets_is_not_counted)
{
    slr_graph_body_added(graph(1), graph(2));
    slr_graph_child_added(graph(2), graph(30), node_of(3)); /* a child in the body */
    cr_assert(slr_graphs_any());
    slr_graph_instantiated(exec(1), graph(1), CUDA_SUCCESS);
    slr_graph_hold(graph(3), &comms[0], 0);
    may_hold(graph(1), true, 0, false);
    slr_graph_hold(graph(3), &comms[0], 1);
    may_hold(graph(2), true, 1, false);
    may_hold(graph(1), true, 0, true);
    may_run(exec(1), false, 0, false); /* that was before */
    slr_graph_instantiated(exec(1), graph(1), CUDA_SUCCESS);
    may_run(exec(1), true, 0, true);
    cr_assert(slr_graph_ends(graph(1))); /* with its nodes */
    may_hold(graph(3), false, 0, false);
    slr_graph_exec_ends(exec(1));
    cr_assert(!slr_graphs_any());
}

Test(graphs, what_a_child_gets_later_is_counted)
{
    slr_graph_child_added(graph(1), graph(2), node_of(2)); /* moved into the node */
    slr_graph_hold(graph(2), &comms[0], 1);
    slr_graph_hold(graph(1), &comms[0], 1);
    may_hold(graph(1), true, 2, false);
    slr_graph_made(graph(2)); /* the handle comes again: it is no child any more */
    slr_graph_hold(graph(2), &comms[0], 1);
    may_hold(graph(1), true, 2, false);
}

Test(graphs, what_a_child_is_set_to_may_run_instead)
{
    slr_graph_hold(graph(1), &comms[0], 1);
    slr_graph_hold(graph(2), &comms[0], 0);
    slr_graph_instantiated(exec(1), graph(1), CUDA_SUCCESS);
    slr_graph_child_set(exec(1), graph(2));
    may_run(exec(1), true, 1, false);
    slr_graph_hold(graph(2), &comms[0], 1);
    slr_graph_child_set(exec(1), graph(2));
    may_run(exec(1), true, 1, true);
}
