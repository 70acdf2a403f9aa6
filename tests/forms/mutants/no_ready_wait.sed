# The pull does not wait until the first owner has put its piece into the slot.
s/if \(way != SLR_ARRIVES\)(\s+slr_memops_await_ready)/if (way != SLR_ARRIVES \&\& step != 1)\1/
