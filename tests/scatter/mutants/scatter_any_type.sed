# Every type is taken for bf16.
s/    default:\n        return false;/    default:\n        *out = SLR_REDUCE_BF16;\n        return true;/
