# The descriptor is believed to be what it was.
s/if \(p->fd < 0 \|\| fstat\(p->fd, &st\) != 0 \|\| st.st_ino != p->inode\)\n        return false;\n    return [^;]*;/(void)st;\n    return p->fd >= 0;/
