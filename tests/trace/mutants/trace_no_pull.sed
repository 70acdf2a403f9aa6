# The copies out of a peer's memory have no stamp.
s/    pull_did\(ring, SLR_SPAN_PULL[^;]*;\n//
