# Gathers of other streams are overtaken, too, although they are seen through the legacy default stream.
s/return op->overtakes && h->stream == op->stream &&/return op->overtakes \&\&/
