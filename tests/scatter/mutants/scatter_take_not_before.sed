# Parts are sent before what stands on the stream that follows.
s/\*before = here \? NULL : p->before;/*before = NULL;/
