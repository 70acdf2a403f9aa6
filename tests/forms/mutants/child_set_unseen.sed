# A child that is set is not what runs.
s/(void slr_graph_may_run\(slr_graph to, slr_graph child\)\n\{\n    if \()!slr_graphs_any\(\)/\1true/
