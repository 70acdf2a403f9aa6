# The last contribution is loaded and not added.
s/(add\(type, wide, &sum\[u\], now\[u\]\);)(\n        store)/if (n == 1) \1\2/
