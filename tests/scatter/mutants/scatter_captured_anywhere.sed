# The call need not stand behind the GEMM.
s/return behind \&\& at\.capture/return at.capture/
