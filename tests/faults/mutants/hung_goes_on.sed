# Who has told once goes on telling.
s/c->told_in_gemm \? 0 : slr_get/slr_get/
