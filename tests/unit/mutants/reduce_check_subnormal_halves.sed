# Subnormal halves are cut off.
s/sign \| \(bits_of\(float_of\(size\) \+ 0\.5f\) - 0x3f000000u\)/sign/
