# Each rank's captures go the way that it would choose now.
s/            return found & RING;/            return wish;/
