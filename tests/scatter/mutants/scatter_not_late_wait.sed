# A gather that the wait overtakes is not waited for.
s/        p->late = p->late \|\| w->held;\n//
