# What other threads do while the parts are enqueued is not seen.
s/    if \(!captured\)\n        slr_product_begin\(p, held\);\n//
s/    if \(!captured\)\n        slr_product_made/    if (!captured)\n        slr_product_begin(p, held), slr_product_made/
