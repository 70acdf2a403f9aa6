# A GEMM whose output is expected to be sent does not end what another one has begun.
s/    drop_locked\(p->ctx\); \/\* its GEMM/    \/* its GEMM/
