# The workspace of the handle is not known.
s/gemm->written\[0\] = slr_workspace_of\(gemm->handle\);/(void)slr_workspace_of;/
