# What else the call stands behind is not waited for.
s/(    p->late = )at\.nodes > 1;/\1false;/
