/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tables/tables.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REGENERATE "cmake --build <build folder> --target docs-tables"

static int fail(const char *path, const char *why)
{
    fprintf(stderr, "slipring-tables: %s: %s\n", path, why);
    return 1;
}

static char *read_file(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *in = fopen(path, "r");
    if (!in)
        return NULL;
    if (getdelim(&text, &size, '\0', in) < 0) { /* an empty file */
        free(text);
        text = strdup("");
    }
    fclose(in);
    return text;
}

static int write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    if (!out)
        return fail(path, strerror(errno));
    bool bad = fputs(text, out) < 0;
    bad |= fclose(out) != 0;
    return bad ? fail(path, strerror(errno)) : 0;
}

/* `have` is NULL when the file does not exist. */
static int sync_text(const char *path, const char *have, const char *want, bool check)
{
    if (have && strcmp(have, want) == 0)
        return 0;
    if (check)
        return fail(path, "does not match the tables; regenerate it with\n    " REGENERATE);
    return write_file(path, want);
}

int sync_document(enum table table, const char *path, bool check)
{
    char *want = NULL, *have = read_file(path);
    size_t size = 0;
    FILE *out = open_memstream(&want, &size);
    if (!out)
        return fail(path, strerror(errno));
    print_document(out, table);
    fclose(out);
    int rc = sync_text(path, have, want, check);
    free(have);
    free(want);
    return rc;
}

/* What stands before and behind each region, and what makes it. */
static const struct {
    const char *begin, *end, *missing;
    void (*print)(FILE *out);
} regions[] = {
    [REGION_LAUNCHER] = {"usage() {\n    cat <<'EOF'\n", "EOF\n}\n",
                         "there is no function usage() with a text until EOF", print_usage},
    [REGION_COUNTERS] = {"<!-- counters:begin -->\n", "<!-- counters:end -->",
                         "the lines <!-- counters:begin --> and <!-- counters:end --> are missing", print_counters},
};

/* `have` with the region in it; NULL when it has no place for it. */
static char *splice(const char *have, enum region region)
{
    char *want = NULL;
    size_t size = 0;
    const char *begin = strstr(have, regions[region].begin);
    const char *end = begin ? strstr(begin, regions[region].end) : NULL;
    FILE *out = end ? open_memstream(&want, &size) : NULL;
    if (!out)
        return NULL;
    fwrite(have, 1, (size_t)(begin - have) + strlen(regions[region].begin), out);
    regions[region].print(out);
    fputs(end, out);
    fclose(out);
    return want;
}

int sync_region(enum region region, const char *path, bool check)
{
    char *have = read_file(path);
    if (!have)
        return fail(path, strerror(errno));
    char *want = splice(have, region);
    int rc = want ? sync_text(path, have, want, check) : fail(path, regions[region].missing);
    free(have);
    free(want);
    return rc;
}
