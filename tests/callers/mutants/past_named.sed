# Exported blocks are named until they are taken back.
s/ \|\| slr_reach_doubtful\(\)\)(\n *return \(struct slr_remote_place)/)\1/
