# A query of its stream does not look at it.
s/l->aside = is_shown\(l, c, true\);/l->aside = false;/
