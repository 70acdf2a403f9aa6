# Whose number a message has is not looked at.
s/ && r->text.receiver == process//
