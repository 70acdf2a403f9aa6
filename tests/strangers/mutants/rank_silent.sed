# The silent are waited for.
s/turn_away\(a, take_unknown\(a, 0\)\);\n    \*out/a->in.fd[a->in.count++] = take_unknown(a, 0);\n    *out/
