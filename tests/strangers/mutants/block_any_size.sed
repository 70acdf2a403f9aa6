# The size of the control block is not looked at.
s/ && st.st_size == \(off_t\)slr_control_bytes\(nranks\)//
