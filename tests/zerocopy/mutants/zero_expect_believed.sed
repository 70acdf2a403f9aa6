# The owner says that the reader was right, whatever it has copied.
s/ \&\& same\(theirs->expected, mine\)//
