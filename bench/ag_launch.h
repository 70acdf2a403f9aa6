/* Starts the ranks and watches them: processes that are forked, threads, or this process as one rank of many. */
#ifndef AG_LAUNCH_H
#define AG_LAUNCH_H

#include "ag_options.h"

/* Runs everything and prints the results. Returns the program's exit status. */
int ag_launch(const struct ag_options *options);

#endif
