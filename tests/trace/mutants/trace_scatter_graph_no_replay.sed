# Replays of reduce-scatters are not measured.
s/        slr_timeline_replay\(c, replay->exec, &g->stamps, c->substituted, replay->stream, NULL\);\n/        {}\n/
