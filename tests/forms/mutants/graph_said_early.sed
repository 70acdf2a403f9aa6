# A replay says that all is in its slots when the first pieces are.
s/way->delivery == SLR_BY_SLOT \? upto : last, /last, /
