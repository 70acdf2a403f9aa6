# What waits for a peer that is stopped is not released.
s/in == SLR_IN_CALL_HELD/false/
