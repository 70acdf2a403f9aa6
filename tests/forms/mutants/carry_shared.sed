# Events carry also when another process can record them.
s/ && !is_shared\(event\)\)/)/
