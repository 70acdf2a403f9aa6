# A peer that is gone is an error although this rank's part is about to end.
s/#define TURN_MS 1000/#define TURN_MS 1/
