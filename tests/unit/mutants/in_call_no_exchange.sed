# A thread leaves in two steps, and may be told between them.
s/#include <stdatomic.h>/#include <stdatomic.h>\n#include <unistd.h>/
s/atomic_exchange\(&entries\[entry\].word, FREE\) & TOLD/leave_in_steps(\&entries[entry]) \& TOLD/
s/(bool slr_in_call_leave)/static uint64_t leave_in_steps(struct entry *e)\n{\n    uint64_t word = atomic_load(\&e->word);\n    usleep(20);\n    atomic_store(\&e->word, FREE);\n    return word;\n}\n\n\1/
