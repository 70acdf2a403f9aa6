# The call may send another size.
s/ \&\& p->bytes == bytes//
