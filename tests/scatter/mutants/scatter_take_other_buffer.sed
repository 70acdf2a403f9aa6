# The call may send another buffer than the GEMM wrote.
s/taken = p->c == send \&\& /taken = /
