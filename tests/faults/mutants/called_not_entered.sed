# A reduce-scatter in its turn is not entered.
s/now \? slr_turn_begin\(call->comm\)/false \? slr_turn_begin(call->comm)/
s/if \(now\) (\/\* behind)/if (false) \1/
