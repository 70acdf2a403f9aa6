# In a group the call is made at once.
s/grouped = slr_in_group\(\), connects/grouped = false, connects/
