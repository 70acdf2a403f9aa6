# An abort does not wait for peers that may still write into the receive buffer.
s/await_writers\(c, end\);//
