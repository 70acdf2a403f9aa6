# A replay has the numbers of the replay before.
s/SLR_TRY\(node->ops \? give_words\(exec, recorded, node, ring, g, last\) : /SLR_TRY(node->ops ? (node->bytes++ < 2 ? give_words(exec, recorded, node, ring, g, last) : SLR_OK) : /
