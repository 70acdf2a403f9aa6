# A part writes where the first one's auxiliary matrix lies.
s/op->aux = \(const char \*\)op->aux \+ aux_offset\([^;]*;/op->aux = (const char *)op->aux + 0 * aux_offset(op, part, on_a, col);/
