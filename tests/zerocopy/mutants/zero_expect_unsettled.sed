# The reader takes what it has copied from an expected place for the shard, whatever the owner says.
s/(await_ready\(m, ring, owner_at\(ring, step\), slr_ready_value\(last, )1/\10/
