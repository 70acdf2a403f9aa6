# The seals of the control block are not looked at.
s/ &&\n? *\(fcntl\(fd, F_GET_SEALS\) & SEALS\) == SEALS//
