s/if \(!slr_connect_let_go\(c, r, epoch\)\)\n *return;/;/
