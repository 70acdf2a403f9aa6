# What is pending when something is opened stays so.
s/(atomic_load\(&slr_reach_looks\)\)\n *)join_pending\(\);\n\}/\1(void)0;\n}/
