# A failed communicator tells though it has nothing in flight.
s/return c->failed_open && broken\(c\);/return true;/
