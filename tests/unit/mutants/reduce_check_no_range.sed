# No order leaves the range of the type.
s/const bool leaves = [^;]*;/const bool leaves = false;/
