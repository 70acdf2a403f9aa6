# Nothing hangs, and it is released all the same.
s/if \(in != SLR_IN_CALL_NONE && !c->told_in_call\)/if (!c->told_in_call)/
