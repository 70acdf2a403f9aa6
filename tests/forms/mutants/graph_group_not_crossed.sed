# The group's other streams of the communicator do not see its captured gathers.
s/            all->one\[i\].status = cross\(group, &all->one\[i\]\);/            all->one[i].status = SLR_OK;/
