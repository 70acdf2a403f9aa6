# Another GEMM than was tried is not noticed.
s/        s->strangers \+= is_stranger[^;]*;\n//
