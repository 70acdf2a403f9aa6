# A record that has been read is written again.
s/        write_gather\(r\);\n/        write_gather(r);\n    if (r->m->kind != SLR_TIMED_SCATTER \&\& r->m->number == 3)\n        write_gather(r);\n/
