# The sum is rounded to the type before it is scaled.
s/float low = __fmul_rn\(s->lane\[2 \* w\], scale\)/float low = __fmul_rn(type == BF16 ? __uint_as_float(two_bf16(s->lane[2 * w], 0) << 16) : s->lane[2 * w], scale)/
