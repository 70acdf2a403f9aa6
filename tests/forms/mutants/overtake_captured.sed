# A wait overtakes a gather also while something captures.
s/return slr_real\.cuStreamGetCaptureInfo && [^;]*;/return true;/
