# The end of a group is entered for calls in their turn of the trials only.
s/uses\[i\]\.left = true;/uses[i].left |= turn;/
