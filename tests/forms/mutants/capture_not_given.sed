# No capture is into a graph of the program's.
s/    const bool is = \*find\(capture\) \|\| /    const bool is = /
