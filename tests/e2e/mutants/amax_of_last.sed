# Parts are made although each one overwrites the largest value.
s/op->amax_d \? "AMAX_D_POINTER"/!op ? "AMAX_D_POINTER"/
