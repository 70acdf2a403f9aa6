# A captured gather of less than SLIPRING_MIN_BYTES is counted, when its size is of interest by then.
s/why == SLR_R_CAPTURE && bytes_of/why == SLR_R_BAD_ARGUMENT \&\& bytes_of/
