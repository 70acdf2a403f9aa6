# The pull does not wait until the first owner has put its piece into the slot.
s/SLR_TRY\(SLR_CU\(cuStreamWaitValue32, ring->pull,\s+dflag\(ring, SLR_FLAG_READY, next,[^;]*;/;/
