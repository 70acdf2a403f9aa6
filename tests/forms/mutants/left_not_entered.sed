# NCCL's call is entered in its turn of the trials only.
s/now \? slr_turn_begin\(call->comm, turn\)/now \&\& turn ? slr_turn_begin(call->comm, turn)/
s/if \(now\) (\/\* behind)/if (now \&\& turn) \1/
