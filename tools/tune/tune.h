/* slipring tune: what was measured, what is best, and the table of it. */
#ifndef SLR_TOOLS_TUNE_H
#define SLR_TOOLS_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One measured call of one rank: an "explored" line of the log (plugin/explore.h). */
struct sample {
    int func, size_class, registered, nranks, nnodes; /* the key: what a rule can tell apart */
    int algo, proto, channels;                        /* the candidate; -1, -1, 0: NCCL's default */
    uint64_t rank;                                    /* which rank of which communicator */
    uint64_t ns;
};

struct samples {
    struct sample *list;
    size_t count, room;
    size_t files, bad_lines;
    char nccl[32], device[96]; /* "" unknown */
    char trouble[320];         /* the first warning about tuning in the logs, "" none */
};

/* Adds every log file of the folder. 0, or -errno. */
int samples_read(struct samples *s, const char *folder);
void samples_free(struct samples *s);

/* Counts the measured calls in the folder so far, for the progress. */
uint64_t samples_count(const char *folder);

/* One key and what was found. */
struct finding {
    int func, size_class, registered, nranks, nnodes;
    int algo, proto, channels;    /* the best */
    uint64_t default_ns, best_ns; /* median of the slowest rank */
    size_t samples;               /* of the default, on the rank that has fewest */
    size_t calls;                 /* measured, all ranks together */
    bool enough;                  /* false: too few samples of the default */
    bool better;                  /* than the default, by the wanted gain */
};

/* Least samples of a candidate on each rank for it to count. */
#define LEAST_SAMPLES 3u

/* All keys, ordered. The list is to be freed. NULL with *count 0: nothing, or no memory. `gain` in percent. */
struct finding *findings_make(struct samples *s, double gain, size_t *count);

void findings_print(const struct finding *f, size_t count, FILE *out);

/* What the head of a table says. */
struct table_head {
    const char *nccl, *device, *command;
    double gain;
};
/* Writes a table, whole or not at all. 0 or -errno; *rules: how many. */
int table_write(const char *path, const struct table_head *head, const struct finding *f, size_t count, size_t *rules);

#endif
