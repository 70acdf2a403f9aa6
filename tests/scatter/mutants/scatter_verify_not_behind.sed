# The ring writes the result into what is still being copied.
s/call->compared\.copied\) \{/0) {/
