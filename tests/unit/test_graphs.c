/* SPDX-License-Identifier: Apache-2.0 */
/* Which graphs hold gathers, and what a launch counts. */
#include <criterion/criterion.h>
#include "plugin/comm/comm.h"
#include "plugin/graphs/graphs.h"
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

static slr_graph graph(uintptr_t n)
{
    return slr_graph_of((CUgraph)n);
}

static slr_graph exec(uintptr_t n)
{
    return slr_graph_exec((CUgraphExec)n);
}

static void runs(slr_graph g, uint32_t first, uint32_t second)
{
    struct slr_graph_holds holds = {.at = 0};
    counted[0] = counted[1] = 0;
    uncounted[0] = uncounted[1] = held[0] = held[1] = false;
    for (struct slr_comm *c; (c = slr_graph_next_comm(g, &holds)) != NULL;) {
        cr_assert(!held[c - comms]);
        held[c - comms] = true;
        counted[c - comms] += holds.gathers;
        uncounted[c - comms] |= holds.uncounted;
    }
    cr_assert(counted[0] == first && counted[1] == second, "%u and %u gathers", counted[0], counted[1]);
}

static void setup(void)
{
    for (int i = 0; i < 2; i++) {
        memset(&comms[i].id, 0x40 + i, sizeof comms[i].id);
        comms[i].rank = i;
    }
}

TestSuite(graphs, .init = setup);

Test(graphs, a_launch_counts_what_was_captured)
{
    cr_assert(!slr_graphs_any());
    slr_graph_hold(graph(1), &comms[0], 1);
    slr_graph_hold(graph(1), &comms[0], 1);
    slr_graph_hold(graph(1), &comms[1], 1);
    cr_assert(slr_graphs_any());
    runs(graph(1), 2, 1);
    runs(exec(1), 0, 0);
    slr_graph_copy(exec(1), graph(1));
    slr_graph_forget(graph(1)); /* it may go when it has been instantiated */
    runs(exec(1), 2, 1);
    runs(graph(1), 0, 0);
    ended[0] = true; /* a graph may outlive a communicator */
    runs(exec(1), 0, 1);
    slr_graph_forget(exec(1));
    runs(exec(1), 0, 0);
    cr_assert(!slr_graphs_any());
}

Test(graphs, a_copy_replaces_and_a_child_adds)
{
    for (uintptr_t n = 1; n <= 600; n++) /* more than there are buckets */
        slr_graph_hold(graph(n), &comms[n % 2], 1);
    slr_graph_copy(exec(1), graph(2));
    runs(exec(1), 1, 0);
    slr_graph_add(graph(2), graph(4));
    slr_graph_add(graph(2), exec(1)); /* it was launched into the capture */
    slr_graph_add(graph(2), graph(5));
    slr_graph_add(graph(2), graph(2));
    runs(graph(2), 3, 1);
    runs(exec(1), 1, 0); /* that was before */
    slr_graph_copy(exec(1), graph(2));
    runs(exec(1), 3, 1);
    slr_graph_copy(exec(1), graph(1000)); /* updated to one without gathers */
    runs(exec(1), 0, 0);
    slr_graph_copy(graph(2), graph(2));
    runs(graph(2), 3, 1);
    for (uintptr_t n = 1; n <= 600; n++)
        slr_graph_forget(graph(n));
    cr_assert(!slr_graphs_any());
}

Test(graphs, a_name_that_comes_again_is_forgotten_before)
{
    slr_graph_hold(graph(1), &comms[0], 1);
    slr_graph_forget(graph(1)); /* a new one of that name begins */
    slr_graph_hold(graph(1), &comms[1], 1);
    runs(graph(1), 0, 1);
}

Test(graphs, no_graph_holds_nothing)
{
    slr_graph_hold(graph(0), &comms[0], 1);
    slr_graph_hold(graph(1), &comms[0], 1);
    slr_graph_add(graph(0), graph(1));
    slr_graph_copy(exec(0), graph(1));
    runs(graph(0), 0, 0);
    runs(exec(0), 0, 0);
    off = true; /* a child after fork */
    runs(graph(1), 0, 0);
}

/* Exactly these, of the first communicator. */
static void may_run(slr_graph g, bool holds, uint32_t gathers, bool others)
{
    runs(g, gathers, 0);
    cr_assert(held[0] == holds && uncounted[0] == others && !held[1]);
}

static CUgraph handle(uintptr_t n)
{
    return (CUgraph)n;
}

Test(graphs, other_operations_are_held_and_not_counted)
{
    slr_graph_hold(graph(1), &comms[0], 0);
    may_run(graph(1), true, 0, false);
    slr_graph_hold(graph(1), &comms[0], 1);
    may_run(graph(1), true, 1, false);
}

Test(graphs, what_a_body_gets_is_not_counted)
{
    slr_graph_part(handle(2), handle(1), true);
    slr_graph_part(handle(3), handle(2), false); /* a child in the body */
    cr_assert(slr_graphs_any() && slr_graph_in_body(handle(3)) && !slr_graph_in_body(handle(1)));
    slr_graph_copy(exec(1), graph(1));
    slr_graph_hold(graph(3), &comms[0], 0);
    may_run(graph(1), true, 0, false);
    slr_graph_hold(graph(3), &comms[0], 1);
    may_run(graph(2), true, 1, false);
    may_run(graph(1), true, 0, true);
    may_run(exec(1), false, 0, false); /* that was before */
    slr_graph_copy(exec(1), graph(1));
    may_run(exec(1), true, 0, true);
    slr_graph_forget(graph(1)); /* with its nodes */
    may_run(graph(3), false, 0, false);
    cr_assert(!slr_graph_in_body(handle(3)));
    slr_graph_forget(exec(1));
    cr_assert(!slr_graphs_any());
}

Test(graphs, what_a_child_gets_later_is_counted)
{
    slr_graph_part(handle(2), handle(1), false);
    slr_graph_hold(graph(2), &comms[0], 1);
    slr_graph_hold(graph(1), &comms[0], 1);
    may_run(graph(1), true, 2, false);
    slr_graph_forget(graph(2)); /* the handle comes again: it is no child any more */
    slr_graph_hold(graph(2), &comms[0], 1);
    may_run(graph(1), true, 2, false);
}

Test(graphs, what_a_child_is_set_to_may_run_instead)
{
    slr_graph_hold(graph(1), &comms[0], 1);
    slr_graph_hold(graph(2), &comms[0], 0);
    slr_graph_copy(exec(1), graph(1));
    slr_graph_may_run(exec(1), graph(2));
    may_run(exec(1), true, 1, false);
    slr_graph_hold(graph(2), &comms[0], 1);
    slr_graph_may_run(exec(1), graph(2));
    may_run(exec(1), true, 1, true);
}
