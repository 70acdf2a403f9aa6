# The stream of the call counts as standing still although another one has taken the gather over.
s/make_wait\(c, c->pending->holder\[0\]\.stream, false\)/make_wait(c, c->pending->holder[0].stream, true)/
