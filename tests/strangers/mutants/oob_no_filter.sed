# Messages of everybody take a place in the socket.
s/    if \(sock >= 0\)\n *keep_out\(sock\);//
