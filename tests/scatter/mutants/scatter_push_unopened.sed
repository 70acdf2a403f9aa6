# A sender does not wait for the slots.
s/    if \(index == 0\) \{/    if (index < 0) {/
