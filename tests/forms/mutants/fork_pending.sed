# What is pending in the parent is pending in the child.
s/atomic_fetch_and\(&slr_gate_word, SLR_GATE_UNRESOLVED\)/atomic_load(\&slr_gate_word)/
