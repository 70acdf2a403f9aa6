/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/doctor/bundle.h"

#include <gnu/libc-version.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "tools/common/archive.h"
#include "tools/common/child.h"

enum { PRINTED = 1 << 20 }; /* of a command */

static char *print_of(void (*print)(FILE *out, const struct doctor *d), const struct doctor *d)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = tool_checked(open_memstream(&text, &size));
    print(to, d);
    fclose(to);
    return tool_checked(text);
}

/* What a command prints, if it is there and good. */
static void add_command(struct bundle *b, const struct doctor *d, const char *name, const char *what,
                        char *const argv[])
{
    char *text = tool_alloc(PRINTED, 1);
    const struct child_end end = child_capture(argv, 0, text, PRINTED, d->limit_ms);
    if (end.how == CHILD_ENDED && end.value == 0 && *text)
        bundle_add(b, name, what, tool_copy(text));
    free(text);
}

/* One line of a file; empty: it has none. */
static char *line_of(const char *path)
{
    char line[512] = "";
    FILE *in = fopen(path, "re");
    if (in && !fgets(line, sizeof line, in))
        *line = '\0';
    if (in)
        fclose(in);
    line[strcspn(line, "\n")] = '\0';
    return tool_copy(line);
}

static void add_versions(struct bundle *b)
{
    struct utsname u = {0};
    char *driver = line_of("/proc/driver/nvidia/version"), *os = line_of("/etc/os-release");
    uname(&u);
    bundle_add(b, "versions.txt", "slipring, kernel, C library, system, driver",
               tool_text("slipring %s\nkernel %s %s %s\nglibc %s\nsystem %s\ndriver %s\n", SLIPRING_VERSION, u.sysname,
                         u.release, u.machine, gnu_get_libc_version(), os, *driver ? driver : "none of NVIDIA's"));
    free(driver);
    free(os);
}

static bool collect(struct bundle *b, const struct doctor *d, const struct words *logs)
{
    char *launcher = getenv("SLIPRING_LAUNCHER");
    bundle_add(b, "doctor.txt", "what slipring doctor says, with the links between devices",
               print_of(doctor_print_text, d));
    bundle_add(b, "doctor.json", "the same for programs", print_of(doctor_print_json, d));
    add_versions(b);
    bundle_add(b, "environment.txt", "SLIPRING_* and NCCL_* of the environment", tool_copy(b->environment));
    if (launcher && *launcher) {
        add_command(b, d, "settings.txt", "slipring env --all", (char *[]){launcher, "env", "--all", NULL});
        add_command(b, d, "running.json", "slipring top, of jobs that run now",
                    (char *[]){launcher, "top", "--once", "--json", NULL});
    }
    add_command(b, d, "topology.txt", "nvidia-smi topo -m", (char *[]){"nvidia-smi", "topo", "-m", NULL});
    return bundle_logs(b, logs);
}

static void list(const struct bundle *b)
{
    fprintf(stderr, "slipring doctor: %s is to hold:\n", b->path);
    for (size_t i = 0; i < b->members.n; i++)
        fprintf(stderr, "%9zu bytes  %-28s %s\n", strlen(b->members.at[i].text), b->members.at[i].name,
                b->members.at[i].what);
    fprintf(stderr, "The home folder is ~ in it; programs' arguments are left out, and values that may be secrets%s",
            b->withheld.count ? ":" : ".");
    for (size_t i = 0; i < b->withheld.count; i++)
        fprintf(stderr, " %s", b->withheld.word[i]);
    fputc('\n', stderr);
}

static bool agreed(void)
{
    char answer[16] = "";
    if (!isatty(STDIN_FILENO)) {
        fputs("slipring doctor: nothing was written: --yes writes it without a question\n", stderr);
        return false;
    }
    fputs("Write it? [y/N] ", stderr);
    const bool yes = fgets(answer, sizeof answer, stdin) && (*answer == 'y' || *answer == 'Y');
    if (!yes)
        fputs("slipring doctor: nothing was written\n", stderr);
    return yes;
}

static void write_all(const struct bundle *b)
{
    struct archive a;
    archive_begin(&a, b->file.to, (long long)time(NULL));
    for (size_t i = 0; i < b->members.n; i++) {
        char *name = tool_text("slipring-bundle/%s", b->members.at[i].name);
        archive_add(&a, name, b->members.at[i].text, strlen(b->members.at[i].text));
        free(name);
    }
    archive_end(&a);
}

static void forget(struct bundle *b)
{
    for (size_t i = 0; i < b->members.n; i++) {
        free(b->members.at[i].name);
        free(b->members.at[i].text);
    }
    vec_free(&b->members);
    words_free(&b->hidden);
    words_free(&b->withheld);
    free(b->environment);
}

bool doctor_bundle_begin(struct bundle *b, const char *path)
{
    *b = (struct bundle){.path = path};
    if (!output_open(&b->file, path))
        return false;
    bundle_environment(b);
    return true;
}

bool doctor_bundle_end(struct bundle *b, const struct doctor *d, const struct words *logs, bool yes)
{
    bool good = collect(b, d, logs);
    if (good)
        list(b);
    good = good && (yes || agreed());
    if (good)
        write_all(b);
    good = output_end(&b->file, good) && good;
    if (good)
        fprintf(stderr, "slipring doctor: wrote %s\n", b->path);
    forget(b);
    return good;
}
