# What a graph that is being launched names is unmapped when the communicator fails meanwhile.
s/ && !c->exports->launching//
