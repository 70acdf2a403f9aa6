# The call may send another buffer than the GEMM wrote.
s/taken = p->live \&\& p->c == send \&\& /taken = p->live \&\& /
