# What stands on the stream that follows is not waited for.
s/\*before = taken \&\& !here \? p->before : NULL;/*before = NULL;/
