#include "base/settings_internal.h"
#include "base/log.h"
#include "base/once.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct slr_settings settings;
static struct slr_once parsed;
/* Copies of TEXT values: a program may rewrite its environment (shells do) and free the strings. */
static char text_copy[4 * (SLR_SETTING_TEXT_MAX + 1)];

static void keep_texts(struct slr_settings *s)
{
    size_t used = 0;
    for (int i = 0; i < SLR_S_COUNT; i++) {
        size_t size = strlen(s->text[i]) + 1;
        if (slr_setting_rows[i].kind != SLR_KIND_TEXT)
            continue;
        if (size > sizeof text_copy - used) { /* not before there are five TEXT settings, all of the greatest length */
            s->text[i] = "";
            continue;
        }
        s->text[i] = memcpy(text_copy + used, s->text[i], size);
        used += size;
    }
}

static void complain(void *ctx, const char *name, const char *value, const char *expected, const char *nearest)
{
    (void)ctx;
    if (nearest)
        slr_log(SLR_LOG_WARN, "setting", "name=%s value=%s expected=%s nearest=%s msg=%s", name, value, expected,
                nearest, "ignored");
    else
        slr_log(SLR_LOG_WARN, "setting", "name=%s value=%s expected=%s msg=%s", name, value, expected,
                "ignored, the default is used");
}

/* Complaints go to the log, which needs the settings: so they are told by a second pass, after the first is published.
 */
static void parse_own(void)
{
    struct slr_settings scratch;
    int saved = errno;
    if (slr_once_begin(&parsed)) {
        slr_settings_parse(&settings, environ, NULL, NULL);
        keep_texts(&settings);
        slr_once_end(&parsed);
        slr_settings_parse(&scratch, environ, complain, NULL);
    }
    errno = saved;
}

const struct slr_settings *slr_settings(void)
{
    if (__builtin_expect(!slr_once_done(&parsed), 0))
        parse_own();
    return &settings;
}
