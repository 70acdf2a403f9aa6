# The sum goes from the right.
s/a->in\[0\] \+ from/a->in[n - 1] + from/;s/\(const char \*\)a->in\[r\] \+ from/(const char *)a->in[n - 1 - r] + from/
