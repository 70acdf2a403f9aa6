# A rank says that its stream has come to the call when it has not.
s/s->entry \? first : last/last/
