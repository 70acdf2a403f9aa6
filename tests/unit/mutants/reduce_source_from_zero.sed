# Sums begin with 0, which makes 0 of -0.
s/= -0\.0f;/= 0.0f;/
