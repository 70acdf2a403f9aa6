# A graph that is made of another one holds nothing.
s/    forget\(to\);\n    add\(to, from\);/    forget(to);/
