# The beginning of a longer message counts as one.
s/MSG_TRUNC \| MSG_CTRUNC/MSG_CTRUNC/
