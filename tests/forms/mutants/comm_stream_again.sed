# A stream with the handle of one that has been destroyed is taken for it.
s/    atomic_store\(&o->id, SLR_NO_STREAM\);//g
s/        atomic_compare_exchange_strong\(&o->id, &id, SLR_NO_STREAM\);/        (void)id;/
