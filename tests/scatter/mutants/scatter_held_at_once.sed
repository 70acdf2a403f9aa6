# The first call of a group is made, as if there were no group.
s/group->begun = group->holds = call->held = true;/return slr_call_make(call);/
s/if \(!slr_in_group\(\)\)/if (true)/
