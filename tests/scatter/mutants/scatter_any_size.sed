# The slots are taken to have room for every shard.
s/return call->shard <= most \|\| [^;]*;/return most || are_processes(call->comm);/
