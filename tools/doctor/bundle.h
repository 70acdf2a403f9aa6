/* SPDX-License-Identifier: Apache-2.0 */
/* slipring doctor --bundle: what a bug report needs, in one archive, without secrets. */
#ifndef SLR_TOOLS_DOCTOR_BUNDLE_H
#define SLR_TOOLS_DOCTOR_BUNDLE_H

#include <stdbool.h>
#include "tools/common/vec.h"
#include "tools/common/output.h"
#include "tools/common/words.h"
#include "tools/doctor/doctor.h"

struct bundle_member {
    char *name, *text;
    const char *what; /* for the list */
};

struct bundle {
    struct output file;
    const char *path;
    VEC(struct bundle_member) members;
    struct words hidden;   /* values that may be secrets; nothing that is written has them */
    struct words withheld; /* variables of SLIPRING_* and NCCL_* whose values are not shown */
    char *environment;     /* those that are */
};

/* Before anything is tried: opens what is to be written, and takes values that may be secrets out of the environment, so
 * that nothing can print them. False: it can not be written, which has been told. */
bool doctor_bundle_begin(struct bundle *b, const char *path);

/* Says what it would hold, asks (`yes`: does not), and writes it. False: it is not written; why has been told. */
bool doctor_bundle_end(struct bundle *b, const struct doctor *d, const struct words *logs, bool yes);

/* ---- bundle_text.c ---- */

/* Fills hidden, withheld and environment, and leaves those values out of the environment itself. */
void bundle_environment(struct bundle *b);

/* Adds it, without what is hidden, with ~ for the home folder; takes `text`. */
void bundle_add(struct bundle *b, const char *name, const char *what, char *text);

/* Adds the ends of the logs: of `paths`, files and folders, and of SLIPRING_LOG_FILE. False: one is not there, which has
 * been told. */
bool bundle_logs(struct bundle *b, const struct words *paths);

#endif
