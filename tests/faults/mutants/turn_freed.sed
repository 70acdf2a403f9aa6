# Words that the device is still to write are given back.
s/ \|\| !device_let_go\(&d->shared\)//
