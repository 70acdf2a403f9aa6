# Captures are taken to be seen.
s/slr_captures_unseen\(\);//
