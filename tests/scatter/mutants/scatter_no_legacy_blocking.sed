# A stream that follows is taken for non-blocking.
s/        p->blocking = p->blocking \|\| w->blocking;\n//
