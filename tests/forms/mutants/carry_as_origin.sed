# A record on a stream that took the gather over is treated as one on the gather's own.
s/h && h->origin/h/
