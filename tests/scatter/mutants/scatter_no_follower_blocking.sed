# That the stream which follows waits for the legacy default stream is not known.
s/        p->blocking = p->blocking \|\| w->blocking;\n//
