# A captured call may send from another buffer than the GEMM writes to.
s/ && p->c == send && p->bytes == bytes && comes_next/ \&\& p->bytes == bytes \&\& comes_next/
