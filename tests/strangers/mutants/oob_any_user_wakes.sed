# Messages of every user count.
s/ && who.uid == getuid\(\)//
