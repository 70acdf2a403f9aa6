# Functions are not loaded.
s/SLR_TRY\(load_now\(r->function\[t\]\)\);//
