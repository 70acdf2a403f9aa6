/* SPDX-License-Identifier: Apache-2.0 */
/* The log's lines `process` and `connections`: what a log is of. */
#ifndef SLR_PLUGIN_LIFECYCLE_ABOUT_H
#define SLR_PLUGIN_LIFECYCLE_ABOUT_H

/* Where a communicator is made; writes the lines at the first one. */
void slr_about_log(void);

/* The driver has been made to have so many hardware queues, `to`, instead of `from`. From any thread. */
void slr_about_queues(unsigned long from, unsigned long to);

#endif
