# A gather that the wait of the stream that follows overtakes is not waited for.
s/        p->late = p->late \|\| w->held;\n//
