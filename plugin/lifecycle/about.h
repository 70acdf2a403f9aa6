/* SPDX-License-Identifier: Apache-2.0 */
/* The log's line `process`: what a log is of. */
#ifndef SLR_PLUGIN_LIFECYCLE_ABOUT_H
#define SLR_PLUGIN_LIFECYCLE_ABOUT_H

/* Where a communicator is made; writes the line at the first one. */
void slr_about_log(void);

#endif
