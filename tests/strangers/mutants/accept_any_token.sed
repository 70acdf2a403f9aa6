# The first message may be anything of the right length.
s/ && memcmp\(&said, &a->token, sizeof said\) == 0//
