s/if \(e->kind != SLR_EXPORT_DESCRIPTOR\)\s+return SLR_IMPORT_FAILED;/if (e->kind != SLR_EXPORT_DESCRIPTOR)\n        return *shared = false, SLR_IMPORT_OK;/
