# Every other tile of a block is left out.
s/at \+= gridDim\.x \* tile/at += 2 * gridDim.x * tile/
