s/(p\.pieces = )(p\.chunks = )/\1200000000;\n    \2/
