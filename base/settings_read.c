/* SPDX-License-Identifier: Apache-2.0 */
/* The settings that a process has: of its environment, and of the files with settings. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/settings.h"
#include "base/wait.h"

/* ---- files ---- */

enum { FILE_MOST = 16384 };

/* What is wrong with it, in the form of what was expected; NULL: nothing. `own`: whose it is counts. Whatever it is,
 * nothing waits for it: a device, as /dev/null, is an empty file. */
static const char *read_text(const char *path, bool own, char text[FILE_MOST + 1])
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const char *wrong = NULL;
    ssize_t n = 0;
    if (fd < 0)
        return "a file that can be read";
    if (fstat(fd, &st) != 0 || !(S_ISREG(st.st_mode) || S_ISCHR(st.st_mode)))
        wrong = "a file";
    else if (own && st.st_uid != geteuid() && st.st_uid != 0)
        wrong = "a file of this user";
    else if (S_ISREG(st.st_mode) && (n = read(fd, text, FILE_MOST + 1)) < 0)
        wrong = "a file that can be read";
    else if (n > FILE_MOST || memchr(text, '\0', (size_t)n))
        wrong = "a text of at most 16384 bytes";
    close(fd);
    text[wrong ? 0 : n] = '\0';
    return wrong;
}
_Static_assert(FILE_MOST == 16384, "what is said of a file that is too long says so");

struct reader {
    struct slr_settings *s;
    slr_settings_complaint complain;
    void *ctx;
};

/* `named`: by the user. */
static void take_file(const struct reader *r, const char *path, bool named, bool own, char *text)
{
    const struct slr_setting_place whole = {path, 0};
    errno = 0;
    const char *wrong = read_text(path, own, text);
    if (!wrong)
        slr_settings_file(r->s, path, text, r->complain, r->ctx);
    else if (r->complain && (named || (errno != ENOENT && errno != ENOTDIR)))
        r->complain(r->ctx, &whole, SLR_SETTING_PREFIX "CONF_FILE", path, wrong, NULL);
}

static const char *home_of(char *const *envp)
{
    for (; envp && *envp; envp++)
        if (strncmp(*envp, "HOME=/", 6) == 0)
            return *envp + 5;
    return NULL;
}

void slr_settings_files(struct slr_settings *s, char *const *envp, slr_settings_complaint complain, void *ctx)
{
    static char user[PATH_MAX], texts[2][FILE_MOST + 1];
    const struct reader r = {s, complain, ctx};
    const char *named = s->text[SLR_S_CONF_FILE], *home = home_of(envp);
    const bool may = getauxval(AT_SECURE) == 0;
    if (*named)
        snprintf(user, sizeof user, "%s", named);
    else if (home)
        snprintf(user, sizeof user, "%s/" SLR_SETTINGS_HOME, home);
    if (may && (*named || home))
        take_file(&r, user, *named, !*named, texts[0]);
    take_file(&r, SLR_SETTINGS_SYSTEM, false, false, texts[1]);
}

/* ---- this process ---- */

static struct slr_settings settings;
static struct slr_once parsed;
const struct slr_settings *_Atomic slr_settings_there;
/* Copies of values: a program may rewrite its environment (shells do) and free the strings. */
static char text_copy[4 * (SLR_SETTING_TEXT_MAX + 1)];

static void keep_texts(struct slr_settings *s)
{
    size_t used = 0;
    for (int i = 0; i < SLR_S_COUNT; i++) {
        size_t size = strlen(s->text[i]) + 1;
        /* Not before there are four TEXT settings, all of the greatest length. */
        if (size > sizeof text_copy - used) {
            s->text[i] = "";
            continue;
        }
        s->text[i] = memcpy(text_copy + used, s->text[i], size);
        used += size;
    }
}

/* The log needs the settings, so they can not tell their problems themselves. */
static struct slr_setting_problem problems[SLR_SETTING_PROBLEMS];
static int problem_count;

static void note(void *ctx, const struct slr_setting_place *place, const char *name, const char *value,
                 const char *expected, const char *nearest)
{
    (void)ctx;
    if (problem_count == SLR_SETTING_PROBLEMS)
        return;
    struct slr_setting_problem *p = &problems[problem_count++];
    snprintf(p->name, sizeof p->name, "%s", name);
    snprintf(p->value, sizeof p->value, "%s", value);
    snprintf(p->expected, sizeof p->expected, "%s", expected);
    snprintf(p->nearest, sizeof p->nearest, "%s", nearest ? nearest : "");
    slr_setting_place_text(place, p->from, sizeof p->from);
}

const struct slr_settings *slr_settings_first(void)
{
    int saved = errno;
    if (slr_once_begin(&parsed)) {
        problem_count = 0; /* a child may take over from a parent's thread */
        slr_settings_parse(&settings, environ, note, NULL);
        slr_settings_files(&settings, environ, note, NULL);
        keep_texts(&settings);
        slr_once_end(&parsed);
    }
    atomic_store_explicit(&slr_settings_there, &settings, memory_order_release);
    errno = saved;
    return &settings;
}

void slr_settings_off(void)
{
    slr_settings();
    settings.num[SLR_S_ENABLE] = false;
}

const struct slr_setting_problem *slr_settings_problem(int i)
{
    slr_settings();
    return i < problem_count ? &problems[i] : NULL;
}
