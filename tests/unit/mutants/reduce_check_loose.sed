# Another order may be twice as far away.
s/error = 2 \* terms/error = 4 * terms/
