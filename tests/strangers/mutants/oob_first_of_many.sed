# Of several descriptors the first counts.
s/return few && who.pid/return who.pid/;s/MSG_TRUNC \| MSG_CTRUNC/MSG_TRUNC/
