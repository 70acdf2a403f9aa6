# The nodes of a child that was moved are looked for in a copy.
s/copy == child \? NULL : copy/copy/
