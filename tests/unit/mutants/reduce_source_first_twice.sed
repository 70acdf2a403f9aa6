# The first contribution counts twice.
s/a->in\[r\] \+ from/a->in[r - 1] + from/
