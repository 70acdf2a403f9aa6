# The watchdog tells a call that may have left.
s/#include <stdatomic.h>/#include <stdatomic.h>\n#include <unistd.h>/
s/!atomic_compare_exchange_strong\(&e->word, &word, word \| TOLD\)/(usleep(20), atomic_store(\&e->word, word | TOLD), false)/
