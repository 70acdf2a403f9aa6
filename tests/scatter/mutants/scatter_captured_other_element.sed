# Parts of a captured GEMM may end within elements of the call's.
s/g->fused = p && p->elem == slr_type_bytes\(call->type\);/g->fused = p != NULL;/
