# The entry is not looked at.
s/ && r->text.index >= 0 && r->text.index < SLR_EXPORTS//
