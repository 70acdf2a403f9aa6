# A replay takes pieces from slots before they are there.
s/way->source == SLR_FROM_SLOT \? upto : last, 0/before, 0/
