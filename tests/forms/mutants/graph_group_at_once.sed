# A captured gather of a group is recorded at once.
s/slr_in_group\(\) \? keep\(call\) : record_now/record_now/
