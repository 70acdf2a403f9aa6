# An abort while NCCL has a gather is an ordinary end.
s/ \|\| slr_turns_of\(c\)//
