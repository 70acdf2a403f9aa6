# Who says nothing keeps its place.
s/if \(a->unknowns == ACCEPTOR_UNKNOWN\)\n        turn_away\(a, take_unknown\(a, 0\)\);[^\n]*\n/if (a->unknowns == ACCEPTOR_UNKNOWN) {\n        close(fd);\n        return true;\n    }\n/
