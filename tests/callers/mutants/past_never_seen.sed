# A look-up does not tell that an opening has ended.
s/slr_reach_seen\(\);//
