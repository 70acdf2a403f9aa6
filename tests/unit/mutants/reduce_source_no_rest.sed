# What does not fill a tile is left out.
s/i < units; i \+=/i < full; i +=/
