# The other streams of a gather's group do not hold it.
s/            hold\(c, name, true\);/            (void)0;/
