# A captured call may send more or less than the GEMM writes.
s/ && p->c == send && p->bytes == bytes && comes_next/ \&\& p->c == send \&\& comes_next/
