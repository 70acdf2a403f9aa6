# The second side of a call compares counts, also where there is none any more.
s/ \|\| \(theirs \| call->passed_alone\) & UNCOUNTED\)/)/
