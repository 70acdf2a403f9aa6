s/if \(e->kind == SLR_EXPORT_DESCRIPTOR \&\&[^;]*PROT_READWRITE\)/if (true)/
