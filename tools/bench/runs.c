/* SPDX-License-Identifier: Apache-2.0 */
/* Running ag_gemm, in turn without and with slipring. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/bench/bench.h"
#include "tools/common/job.h"
#include "tools/common/progress.h"

struct run {
    struct progress *progress;
    unsigned long long done;
    char note[64];
};

static void tick(void *ctx)
{
    struct run *r = ctx;
    progress_at(r->progress, r->done, r->note);
}

static int open_file(const struct bench *b, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", b->folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        perror(path);
    return fd;
}

/* What the run wrote to a file goes to our stderr. */
static void pass_on(int fd)
{
    char buf[4096];
    ssize_t n;
    lseek(fd, 0, SEEK_SET);
    while ((n = read(fd, buf, sizeof buf)) > 0)
        fwrite(buf, 1, (size_t)n, stderr);
}

static void command_of(const struct bench *b, enum side side, const char *result, struct words *w)
{
    words_add_all(w, b->device.word);
    if (side == WITH)
        words_add_all(w, b->prefix.word);
    words_add(w, b->ag_gemm);
    words_add_all(w, b->options.word);
    words_add(w, "--json");
    words_add(w, result);
}

static int failed(int status, const struct words *command)
{
    char *line = words_join(command);
    fprintf(stderr, "slipring bench: status %d from: %s\n", status, line);
    free(line);
    return status > 0 && status < 126 ? status : BENCH_ERROR;
}

static int read_result(const char *path, json_t **result)
{
    json_error_t e;
    *result = json_load_file(path, 0, &e);
    if (*result)
        return 0;
    fprintf(stderr, "slipring bench: the result of ag_gemm can not be read: line %d: %s\n", e.line, e.text);
    return BENCH_ERROR;
}

static int run_once(const struct bench *b, enum side side, struct run *r, json_t **result)
{
    char path[2][PATH_MAX + 16], json[PATH_MAX + 16];
    struct words command = {NULL, 0};
    int out = open_file(b, "out", path[0], sizeof path[0]), err = open_file(b, "err", path[1], sizeof path[1]);
    snprintf(json, sizeof json, "%s/run.json", b->folder);
    unlink(json);
    command_of(b, side, json, &command);
    int status = out < 0 || err < 0 ? BENCH_ERROR : job_run(command.word, out, err, tick, r);
    if (err >= 0 && lseek(err, 0, SEEK_END) > 0) {
        progress_clear(r->progress);
        pass_on(err);
    }
    if (job_interrupted()) {
        status = 128 + job_interrupted();
    } else if (status != 0) {
        progress_clear(r->progress);
        if (out >= 0)
            pass_on(out);
        status = failed(status, &command);
    } else {
        status = read_result(json, result);
    }
    close(out);
    close(err);
    words_free(&command);
    return status;
}

static int run_all(const struct bench *b, struct run *r, json_t *runs[SIDES])
{
    static const char *const names[SIDES] = {"without slipring", "with it"};
    for (long round = 0; round < b->rounds; round++)
        for (int i = 0; i < SIDES; i++) {
            enum side side = (i ^ (int)(round % 2)) ? WITH : WITHOUT;
            json_t *result = NULL;
            snprintf(r->note, sizeof r->note, "round %ld, %s", round + 1, names[side]);
            int status = run_once(b, side, r, &result);
            if (status != 0)
                return status;
            json_array_append_new(runs[side], result);
            progress_at(r->progress, ++r->done, NULL);
        }
    return 0;
}

int bench_run(struct bench *b, json_t *runs[SIDES])
{
    struct run r = {.done = 0};
    int rc = job_folder("slipring bench", b->folder, sizeof b->folder);
    if (rc)
        return BENCH_ERROR;
    for (int side = 0; side < SIDES; side++)
        runs[side] = json_array();
    r.progress = progress_begin("slipring bench", 2 * (unsigned long long)b->rounds);
    rc = run_all(b, &r, runs);
    progress_end(r.progress, rc ? "stopped" : NULL);
    job_folder_remove(b->folder);
    return rc;
}
