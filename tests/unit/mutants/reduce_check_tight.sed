# Another order may be as far away as one addition's rounding.
s/2 \* terms \* types/types/
