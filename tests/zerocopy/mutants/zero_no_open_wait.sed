# The owner writes into the receive buffer without asking whether it is free.
s/if \(piece == 0\)\n *SLR_TRY\([^;]*;//
