# All of a group's calls are one group of NCCL's.
s/a->number == b->number &&/a->flow == b->flow \&\&/
