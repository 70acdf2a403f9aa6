# Positions of elements have 32 bits.
s/size_t from, gap, skip;/unsigned from, gap, skip;/
