# What the stream of the GEMM, or the one that follows, waits for is not looked at.
s/    return p->stream == w->stream \|\| \(p->follows \&\& p->follower == w->stream\) \|\| /    return /
