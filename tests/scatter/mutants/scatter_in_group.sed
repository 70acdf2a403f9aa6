# In a group the call is made at once.
s/if \(!slr_in_group\(\)\)/if (true)/
