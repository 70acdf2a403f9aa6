# Two processes may say that they are the same rank.
s/ && all->pid\[h.rank\]\)/ \&\& 0)/
