# Pointers that lie differently are taken to lie alike.
s/\(differ \& 15\) == 0/1/
