# Nobody accepts before the rank has returned from NCCL.
s/open = await\(a\);/do { open = await(a); } while (open);/
