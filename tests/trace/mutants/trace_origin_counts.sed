# The stream of the call counts as standing still although another one has taken the gather over.
s/make_wait\(c, &c->pending->holder\[i\], false\)/make_wait(c, \&c->pending->holder[i], true)/
