# A query says ready while a GEMM that reads what is sent is on its way.
s/return atomic_load\(&c->pending->read\);/return false;/
