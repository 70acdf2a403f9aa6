# Contributions are added in another order on each rank.
s/in\[r\] = /in[(r + ring->rank + 1) % ring->nranks] = /
