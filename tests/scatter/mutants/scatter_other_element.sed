# Parts may end within an element of what is sent.
s/if \(p \&\& p->elem == slr_type_bytes\(call->type\) \&\& alone/if (p \&\& alone/
