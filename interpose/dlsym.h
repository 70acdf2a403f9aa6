/* SPDX-License-Identifier: Apache-2.0 */
/* What dlsym and dlvsym as this library exports them (dlsym.S) ask. */
#ifndef SLR_INTERPOSE_DLSYM_H
#define SLR_INTERPOSE_DLSYM_H

/* What to return instead of the real function's result; NULL: go on to the real function. */
void *slr_dlsym_find(void *handle, const char *name);
void *slr_dlvsym_find(void *handle, const char *name, const char *version);

#endif
