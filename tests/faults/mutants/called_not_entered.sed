# A reduce-scatter in its turn is not entered.
s/now \? slr_turn_begin\(call->comm, turn\)/false \? slr_turn_begin(call->comm, turn)/
s/if \(now\) (\/\* behind)/if (false) \1/
