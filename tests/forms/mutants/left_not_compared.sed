# The second side of a call does not look at what the first had left.
s/    if \(theirs == call->left\)\n/    if (theirs == call->left || call)\n/
