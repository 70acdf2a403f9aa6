# What is told in a group's end is not returned.
s/return told != ncclSuccess \? told : r; (\/\* what)/(void)told;\n    return r; \1/
