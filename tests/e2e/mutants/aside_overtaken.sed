# What overtakes the gather overtakes the GEMM aside, too.
s/\(!h->aside \|\| \(op->gemm/(true || (op->gemm/
