# A call in a group is captured at once.
s/\*r = slr_in_group\(\) \? keep\(call\) : record_now\(call\)/(void)keep;\n    *r = record_now(call)/
