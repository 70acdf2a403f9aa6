# Gathers are captured for the ring, whoever launches the graph.
s/ && !slr_reach_past\(\) && / \&\& /
