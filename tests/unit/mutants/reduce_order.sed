# The contributions are handed over backwards.
s/memcpy\(args\.in, in, \(size_t\)n \* sizeof in\[0\]\);/for (int r = 0; r < n; r++) args.in[r] = in[n - 1 - r];/
