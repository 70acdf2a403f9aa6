# The reader that comes second takes the shard from the slot, whatever the owner said.
s/if \(!first && theirs\.generation\) \{(\n *route\[peer\]\.source)/if (0) {\1/
