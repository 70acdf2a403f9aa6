# Who has told once goes on telling.
s/c->told_in_call \? 0 : slr_get/slr_get/
