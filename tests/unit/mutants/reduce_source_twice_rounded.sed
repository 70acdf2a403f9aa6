# The sum is rounded to the type before it is divided.
s/float low = quotient\(s->lane\[2 \* w\], factor\)/float low = quotient(type == BF16 ? __uint_as_float(two_bf16(s->lane[2 * w], 0) << 16) : s->lane[2 * w], factor)/
