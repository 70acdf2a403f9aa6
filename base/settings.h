/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: read once from the environment (SLIPRING_*) and from files, then constant but for a fork. The table is
 * settings.def. */
#ifndef SLR_BASE_SETTINGS_H
#define SLR_BASE_SETTINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLR_SETTING_PREFIX "SLIPRING_"
#define SLR_SETTING_TEXT_MAX 4095 /* bytes of a TEXT setting; a file name is the longest use */
#define SLR_SETTING_NAME_SIZE 64  /* no setting's name is longer, with its prefix */

enum slr_setting_id {
#define X(id, ...) SLR_S_##id,
#include "base/settings.def"
#undef X
    SLR_S_COUNT
};

enum slr_setting_kind { SLR_KIND_BOOL, SLR_KIND_UINT, SLR_KIND_BYTES, SLR_KIND_MSEC, SLR_KIND_CHOICE, SLR_KIND_TEXT };
enum slr_setting_scope { SLR_SCOPE_UNIFORM, SLR_SCOPE_LOCAL };
enum slr_setting_group { SLR_GROUP_BASIC, SLR_GROUP_EXPERT, SLR_GROUPS };

struct slr_setting_row {
    const char *name; /* without the prefix */
    enum slr_setting_kind kind;
    const char *def;
    uint64_t min, max; /* of numbers; not used by CHOICE and TEXT */
    const char *choices;
    enum slr_setting_scope scope;
    enum slr_setting_group group;
    const char *doc;
};
extern const struct slr_setting_row slr_setting_rows[SLR_S_COUNT];

#define SLR_SETTINGS_HOME ".slipring.conf" /* in $HOME */
#define SLR_SETTINGS_SYSTEM "/etc/slipring.conf"

/* Where a value stands. */
struct slr_setting_place {
    const char *file; /* NULL: in the environment, or nowhere */
    unsigned line;    /* from 1; 0: the file as a whole */
};

struct slr_settings {
    uint64_t num[SLR_S_COUNT];     /* value of every kind but TEXT; times in milliseconds */
    const char *text[SLR_S_COUNT]; /* as it is given, "" when it is not; never NULL */
    bool given[SLR_S_COUNT];       /* in the environment or a file, and accepted: not the default */
    bool settled[SLR_S_COUNT];     /* given, or empty, which is the default: no later place counts */
    struct slr_setting_place place[SLR_S_COUNT];
};

/* This process's; NULL before they have been parsed. */
extern const struct slr_settings *_Atomic slr_settings_there __attribute__((visibility("hidden")));
const struct slr_settings *slr_settings_first(void);

/* Parsed at the first call. Thread-safe. */
static inline const struct slr_settings *slr_settings(void)
{
    const struct slr_settings *s = atomic_load_explicit(&slr_settings_there, memory_order_acquire);
    return __builtin_expect(s != NULL, 1) ? s : slr_settings_first();
}

static inline uint64_t slr_get(enum slr_setting_id id)
{
    return slr_settings()->num[id];
}

/* From now on as with SLIPRING_ENABLE=off: in a child after fork, before it has a second thread. */
void slr_settings_off(void);

/* What was wrong with them, in the order of the environment and of the files; NULL behind the last. The first so
 * many are remembered, and values are cut. The log tells them (log.h). */
#define SLR_SETTING_PROBLEMS 16
struct slr_setting_problem {
    char name[128], value[256];
    char expected[160], nearest[64]; /* `nearest` is empty when there is none */
    char from[256];                  /* "environment", or FILE:LINE */
};
const struct slr_setting_problem *slr_settings_problem(int i);

/* ---- parsing: for settings.c, tools and tests ---- */

/* Where a problem with a value is told. `name` is the full variable name, `value` what it held,
 * `expected` the accepted form in words, `nearest` the nearest known name or NULL. */
typedef void (*slr_settings_complaint)(void *ctx, const struct slr_setting_place *place, const char *name,
                                       const char *value, const char *expected, const char *nearest);

/* "environment", FILE, or FILE:LINE. Returns `buf`. */
const char *slr_setting_place_text(const struct slr_setting_place *place, char *buf, size_t size);

/* Parses `envp` (NULL-terminated "NAME=VALUE" strings). A value that does not parse is as if it were not there; an
 * unknown name with the prefix is told with its nearest known one. At most one complaint for each variable. Texts point
 * into envp's strings. */
void slr_settings_parse(struct slr_settings *s, char *const *envp, slr_settings_complaint complain, void *ctx);

/* Then: what files say of those that are not settled, as nccl.conf does: first CONF_FILE, or without that the one in
 * $HOME of `envp`, if it belongs to this user or to root; then the system's. The former two not in a process that has
 * more rights than its user. A file that is not there is nothing, but for CONF_FILE. Texts and names of files are in
 * static memory: not thread-safe. */
void slr_settings_files(struct slr_settings *s, char *const *envp, slr_settings_complaint complain, void *ctx);

/* One file: lines NAME=VALUE, with the prefix or without, and # for comments; the first line for a name counts. `text`
 * is what it holds, which is cut into its lines and has to stay. */
void slr_settings_file(struct slr_settings *s, const char *path, char *text, slr_settings_complaint complain,
                       void *ctx);

/* Parses one value as the row says. 0 or -EINVAL. */
int slr_setting_value(const struct slr_setting_row *row, const char *text, uint64_t *out);

/* The accepted form in words, e.g. "a size such as 64M, at least 4096". Returns `buf`. */
const char *slr_setting_form(const struct slr_setting_row *row, char *buf, size_t size);

/* The row with this name (without the prefix, exact), or NULL. */
const struct slr_setting_row *slr_setting_find(const char *name, size_t len);

/* The row that is likely what was meant: what other libraries call `name` (DEBUG: LOG), or whose
 * name is close to it. NULL: none. Letter case does not count. */
const struct slr_setting_row *slr_setting_nearest(const char *name, size_t len);

/* Steps (insert, delete, replace, swap of neighbours) between two words, letter case ignored;
 * `limit` + 1: more. */
unsigned slr_edit_distance(const char *a, size_t alen, const char *b, size_t blen, unsigned limit);

#endif
