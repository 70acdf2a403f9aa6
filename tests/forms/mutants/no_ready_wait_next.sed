# A pull does not wait for the owners behind the first one.
s/if \(way != SLR_ARRIVES\)(\s+slr_memops_await_ready)/if (way != SLR_ARRIVES \&\& step == 1)\1/; s/\(way == SLR_FROM_SLOT \&\& piece > 0\)/(way == SLR_FROM_SLOT \&\& piece > 0 \&\& owner == owner_at(ring, 1))/
