# A node keeps the event of the launch before.
s/    for \(unsigned i = 0; given && i < captured->stamps; i\+\+\)\n/    static CUgraphExec last;\n    const bool again = last == exec;\n    last = exec;\n    for (unsigned i = again; given \&\& i < captured->stamps; i++)\n/
