# Any process of the user may speak for a rank.
s/ &&\n? *c->shared.control->post\[r->text.from\].pid == r->pid//
