# The owner that comes second does not push, whatever the reader said.
s/if \(!first && theirs\.generation\) \{(\n *route\[peer\]\.delivery)/if (0) {\1/
