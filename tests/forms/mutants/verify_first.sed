# All of a group's calls are NCCL's before the first one is on the ring.
s/\n        for \(size_t j = i;/\n    }\n    for (size_t i = 0; i < n \&\& r == ncclSuccess; i++) {\n        for (size_t j = came_before(calls, i) ? n : i;/
