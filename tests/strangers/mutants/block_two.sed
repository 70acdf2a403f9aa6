# Of two descriptors the first stays open.
s/if \(\*fd >= 0\)\n                close\(\*fd\);\n            memcpy/memcpy/
