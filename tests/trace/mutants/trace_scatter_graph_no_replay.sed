# Replays of reduce-scatters are not measured.
s/        slr_timeline_replay\(c, exec, &g->stamps, c->substituted, stream, NULL\);\n/        {}\n/
