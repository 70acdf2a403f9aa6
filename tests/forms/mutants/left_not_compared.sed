# The second side of a call does not look at what the first had passed.
s/    if \(theirs == call->passed_alone \|\| /    if (theirs == call->passed_alone || call || /
