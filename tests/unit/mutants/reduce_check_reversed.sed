# Contributions are added from the right.
s/s->in\[0\], i\)\);\n/s->in[s->n - 1], i));\n/
s/load\(s->type, s->in\[r\], i\)\);\n    return rounded/load(s->type, s->in[s->n - 1 - r], i));\n    return rounded/
