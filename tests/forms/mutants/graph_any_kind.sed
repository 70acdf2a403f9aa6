# Virtual memory of a peer is mapped although graphs have no copies for it.
s/!\(virtual && c->exports->plain_only\[peer\]\)/true/
