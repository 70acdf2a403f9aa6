/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tables/tables.h"
#include <string.h>
#include "commit.h"

/* README.md, Requirements; a test compares them. */
static const char runs_with[] = "runs with: CUDA 12 or 13, driver 525 or later, NCCL 2.19 to 2.32";

static const char usage_text[] =
    "usage: slipring-tables settings|reasons [--text|--markdown|--json]\n"
    "       slipring-tables settings --values|--all-values\n"
    "       slipring-tables settings|reasons|launcher|counters --write FILE   bring it up to date in the file\n"
    "       slipring-tables settings|reasons|launcher|counters --check FILE   fail when it is not\n"
    "       slipring-tables usage [COMMAND]                        --help of the launcher, or of a command of its own\n"
    "       slipring-tables options                                the commands' options\n"
    "       slipring-tables completion bash|zsh|fish               what completes the commands in that shell\n"
    "       slipring-tables page FILE DATE                         the manual page of a template\n"
    "       slipring-tables check NAME=VALUE                       print the variable to export, or what is wrong\n"
    "       slipring-tables files                                  NAME=VALUE of the settings that files give\n"
    "       slipring-tables --version|--help\n"
    "--values: values in the present environment, of expert settings only those that are set; --all-values: all.\n";

static int print_version(void)
{
    printf(*SLR_COMMIT ? "slipring " SLIPRING_VERSION " (commit " SLR_COMMIT ")\n" : "slipring " SLIPRING_VERSION "\n");
    puts(runs_with);
    return fflush(stdout) == 0 ? 0 : 1;
}

static int usage(void)
{
    fputs(usage_text, stderr);
    return 2;
}

static int print(enum table table, const char *option)
{
    static const char *const names[] = {"--text", "--markdown", "--json", "--values", "--all-values"};
    for (int form = 0; form <= FORM_ALL_VALUES; form++)
        if (strcmp(option, names[form]) == 0 && (form < FORM_VALUES || table == TABLE_SETTINGS)) {
            print_table(stdout, table, (enum form)form);
            return fflush(stdout) == 0 ? 0 : 1;
        }
    return usage();
}

static int sync_file(const char *what, const char *option, const char *path)
{
    bool check = strcmp(option, "--check") == 0;
    if (!check && strcmp(option, "--write") != 0)
        return usage();
    static const char *const regions[] = {[REGION_LAUNCHER] = "launcher", [REGION_COUNTERS] = "counters"};
    for (int region = 0; region < REGION_COUNT; region++)
        if (strcmp(what, regions[region]) == 0)
            return sync_region((enum region)region, path, check);
    if (strcmp(what, "settings") == 0)
        return sync_document(TABLE_SETTINGS, path, check);
    return strcmp(what, "reasons") == 0 ? sync_document(TABLE_REASONS, path, check) : usage();
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return print_version();
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(usage_text, stdout) < 0;
    if (argc == 3 && strcmp(argv[1], "check") == 0)
        return check_assignment(argv[2]);
    if (argc == 2 && (strcmp(argv[1], "usage") == 0 || strcmp(argv[1], "options") == 0)) {
        (strcmp(argv[1], "usage") == 0 ? print_usage : print_options)(stdout);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    if (argc == 3 && strcmp(argv[1], "usage") == 0)
        return !print_command_usage(stdout, argv[2]) ? usage() : fflush(stdout) == 0 ? 0 : 1;
    if (argc == 3 && strcmp(argv[1], "completion") == 0)
        return !print_completion(stdout, argv[2]) ? usage() : fflush(stdout) == 0 ? 0 : 1;
    if (argc == 2 && strcmp(argv[1], "files") == 0) {
        print_from_files(stdout);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    if (argc == 4 && strcmp(argv[1], "page") == 0)
        return print_page(stdout, argv[2], argv[3]);
    if (argc == 4)
        return sync_file(argv[1], argv[2], argv[3]);
    if ((argc == 2 || argc == 3) && strcmp(argv[1], "settings") == 0)
        return print(TABLE_SETTINGS, argc == 3 ? argv[2] : "--text");
    if ((argc == 2 || argc == 3) && strcmp(argv[1], "reasons") == 0)
        return print(TABLE_REASONS, argc == 3 ? argv[2] : "--text");
    return usage();
}
