# What is embedded in a child node gets nothing later.
s/(struct part \*p = )graph \? malloc/\1graph \&\& body ? malloc/
