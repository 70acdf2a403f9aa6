# What is not bound yet counts as bound to slipring.
s/late \|\| now != atomic_load\(&seen_opened\)/late/
