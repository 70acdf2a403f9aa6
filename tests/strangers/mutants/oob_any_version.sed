# The magic number is not looked at.
s/ &&\n? *r->text.magic == SLR_CONTROL_MAGIC//
