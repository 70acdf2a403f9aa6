# Whoever can reach the memory does not matter.
s/!may_reach\(c\) && //
