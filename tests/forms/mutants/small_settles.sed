# An operation of NCCL's that has overtaken a gather counts as one behind it.
s/o->settled = elsewhere\(&o->gather, stream\) \|\| !c->pending->active;/o->settled = true;/
