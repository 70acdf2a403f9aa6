# The last element is not looked at.
s/i < s->count;/i + 1 < s->count;/
