# A slot is filled again without waiting for its readers.
s/SLR_TRY\(for_peers\(ring, g, every_peer, false,[^;]*;/;/
