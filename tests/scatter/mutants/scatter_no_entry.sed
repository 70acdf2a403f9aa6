# The result is written before the call's stream has come to it.
s/    if \(s->entry\) \{\n        SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->pull, s->entry, 0\)\);/    if (s->entry) {/
