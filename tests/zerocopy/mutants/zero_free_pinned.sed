# Memory that peers have mapped goes back to the driver when the application frees it.
s/bool leaves = b->pins == 0 \|\| b->gone;/bool leaves = b != NULL;/
