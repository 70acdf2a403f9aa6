# A call in a group is captured at once.
s/if \(slr_in_group\(\)\)/if (false)/
