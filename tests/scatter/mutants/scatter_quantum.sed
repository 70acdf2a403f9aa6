# Blocks begin anywhere.
s/step = least > quantum \? least : quantum;/step = least + 0 * quantum;/
