# As many blocks as asked for.
s/return most < blocks \? \(unsigned\)most : blocks;/return blocks;/
