/* SPDX-License-Identifier: Apache-2.0 */
/* Advice to run a command that is not installed is none. */
#include <stdlib.h>
#include <string.h>
#include "tools/common/child.h"
#include "tools/doctor/doctor.h"

static const struct {
    const char *mention;
    char *const words[6]; /* good when what the command needs is there */
} commands[] = {
    {"slipring softgpu", {"softgpu", "--", "true"}},
    {"slipring bench", {"bench", "--", "--help"}},
};

static bool works(const struct doctor *d, char *const words[])
{
    char *launcher = getenv("SLIPRING_LAUNCHER"), *argv[8] = {launcher}, output[4096];
    for (int i = 0; words[i]; i++)
        argv[i + 1] = words[i];
    if (!launcher || !*launcher)
        return true; /* not known */
    const struct child_end end = child_capture(argv, 0, output, sizeof output, d->limit_ms);
    return end.how == CHILD_ENDED && end.value == 0;
}

/* Ends the advice before the sentence, or its last part, that has the mention. */
static void cut_before(struct doctor_finding *f, const char *mention)
{
    size_t n = (size_t)(mention - f->advice);
    while (n > 0 && !(strchr(".;", f->advice[n - 1]) && f->advice[n] == ' '))
        n--;
    char *kept = strndup(f->advice, n);
    if (!kept)
        return;
    if (n > 0)
        kept[n - 1] = '.';
    free(f->own);
    f->advice = f->own = kept;
}

void doctor_leave_installed(struct doctor *d)
{
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
        bool asked = false, there = false;
        for (size_t i = 0; i < d->findings; i++) {
            struct doctor_finding *f = &d->finding[i];
            const char *mention = strstr(f->advice, commands[c].mention);
            if (!mention || f->result == DOCTOR_OK || f->result == DOCTOR_UNKNOWN)
                continue;
            there = asked ? there : works(d, commands[c].words);
            asked = true;
            if (!there)
                cut_before(f, mention);
        }
    }
}
