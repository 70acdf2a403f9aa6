# Parts are sent before what stands on the stream that follows.
s/\*before = taken \&\& !here \? p->before : NULL;/*before = NULL;/
