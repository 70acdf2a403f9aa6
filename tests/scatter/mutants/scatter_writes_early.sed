# The result may be written into what the GEMM uses.
s/            return false;\n    return !p->late;/            return true;\n    return !p->late;/
