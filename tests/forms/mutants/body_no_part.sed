# A graph does not hold what the bodies in it get.
s/(struct part \*p = )graph \? malloc/\1graph \&\& !body ? malloc/
