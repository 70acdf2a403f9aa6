# The child's driver functions stay slipring's.
s/for \(unsigned i = 0; resolved && i < SLR_GATE_COUNT; i\+\+\)/for (unsigned i = 0; false \&\& i < SLR_GATE_COUNT; i++)/
