# Calls on another stream do not wait for the operation before them.
s/return atomic_load\(&o->open\) && !here\(o, stream\);/return false;/
