# The entry is not looked at.
s/ && l->text.entry >= 0 && l->text.entry < SLR_EXPORTS//
