# The owner takes its block back before the peers have closed it.
s/(static bool let_go\([^{]*\{)/\1 if (c) return true;/
