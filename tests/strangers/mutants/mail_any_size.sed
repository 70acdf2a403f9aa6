# Half a message counts as one.
s/ && n == \(ssize_t\)sizeof l->text//
