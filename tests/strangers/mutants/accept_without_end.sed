# Connections are accepted until there is none.
s/\(i < TURN \|\| !open\) && accept_one/accept_one/
