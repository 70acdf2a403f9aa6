# However often a GEMM's parts are in vain, it is cut.
s/pair->cut >= VAIN \&\& pair->sent \* VAIN < pair->cut/false/
