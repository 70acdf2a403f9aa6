# A replay fills its slots again while its peers read them.
s/way->delivery == SLR_BY_SLOT \? upto : before\);/before);/
