# What comes with a refusal stays open.
s/if \(\*fd >= 0\)\n        close\(\*fd\);\n    \*fd = -1;\n    return word == SLR_UNDECIDED/return word == SLR_UNDECIDED/
