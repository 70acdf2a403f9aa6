# What overtakes the gather overtakes the GEMM aside, too.
s/\(!h->beside \|\| \(op->gemm/(true || (op->gemm/
