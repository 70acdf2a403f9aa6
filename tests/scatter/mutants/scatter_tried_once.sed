# Another GEMM than was tried is not noticed.
s| *s->strangers \+=[^;]*;\n||
