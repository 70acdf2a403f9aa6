# Half a message counts as one.
s/ && n == \(ssize_t\)sizeof r->text//
