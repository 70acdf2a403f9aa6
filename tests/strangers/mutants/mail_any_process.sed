# Any process of the user may speak for a rank.
s/ &&\n? *c->shared.control->post\[l->text.from\].pid == l->pid//
