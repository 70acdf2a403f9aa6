# The magic number is not looked at.
s/ &&\n? *l->text.magic == SLR_CONTROL_MAGIC//
