# A stream that waits for an event waits for the communicator's lock as long as it takes.
s/    if \(slr_comm_trylock\(c\)\)/    slr_comm_lock(c);\n    if (c)/
