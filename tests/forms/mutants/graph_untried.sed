# Whether the driver can change graphs is not tried.
s/\n    slr_graphs_try\(c\);//
