# A query of the legacy default stream looks at its own gathers only.
s/ \|\| \(!l->stream && h->blocking\)\)/)/
