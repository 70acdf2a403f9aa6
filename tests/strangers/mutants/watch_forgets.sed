# A process that was gone before it was watched counts as one without a descriptor.
s/p->gone = p->fd < 0 && errno == ESRCH;//;s/pid > 0 && kill\(pid, 0\) != 0 && errno == ESRCH/false/
