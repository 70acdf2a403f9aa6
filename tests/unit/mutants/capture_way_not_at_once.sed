# A rank looks first and writes then.
s/atomic_compare_exchange_strong\(&word\[i\], &found, (size \| \(wish \? RING : 0\))\)/!(found = atomic_load(\&word[i])) \&\& (usleep(50), atomic_store(\&word[i], \1), 1)/
s/#include "plugin\/trials\/capture_way.h"/#include "plugin\/trials\/capture_way.h"\n#include <unistd.h>/
