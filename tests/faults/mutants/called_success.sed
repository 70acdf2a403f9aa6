# The call that has been told returns what NCCL says.
s/return told != ncclSuccess \? told : r;/(void)told;\n    return r;/
