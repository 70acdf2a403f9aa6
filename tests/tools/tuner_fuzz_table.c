/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of the tune file's parser. With libFuzzer (clang -fsanitize=fuzzer), or with the main() below, which any
 * compiler takes: it runs the corpus and mutations of it that a seed makes.
 *
 *   fuzz_tune_table MUTATIONS CORPUS_FILE... */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plugin/abi/nccl_common.h"
#include "plugin/tuner/tune_table.h"

#define CHECK(cond) ((cond) ? (void)0 : (fprintf(stderr, "not so: %s\n", #cond), abort()))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int line_count(const uint8_t *data, size_t size)
{
    int n = 1;
    for (size_t i = 0; i < size; i++)
        n += data[i] == '\n';
    return n;
}

static void check_rule(const struct slr_tune_rule *r)
{
    CHECK(r->func >= -1 && r->func < SLR_NCCL_TUNED_FUNCS && r->registered >= -1 && r->registered <= 1);
    CHECK(r->algo >= -1 && r->algo < SLR_NCCL_ALGOS && r->proto >= -1 && r->proto < SLR_NCCL_PROTOS);
    CHECK(r->channels >= 0 && r->channels <= SLR_NCCL_MAX_CHANNELS);
    CHECK(r->bytes.low <= r->bytes.high && r->ranks.low <= r->ranks.high && r->nodes.low <= r->nodes.high);
}

static void check_site(const struct slr_tune_site *r)
{
    CHECK(r->bytes.low <= r->bytes.high && r->ranks.low <= r->ranks.high && r->consumer.m >= -1);
    CHECK(memchr(r->gpu, 0, sizeof r->gpu) && memchr(r->cut, 0, sizeof r->cut) && !(r->nccl && r->cut[0]));
    CHECK(slr_tune_site_same(r, r, true) && slr_consumer_fits(&r->consumer, &r->consumer));
}

static void check_table(struct slr_tune_table *t)
{
    CHECK(t->digest != 0 && t->count + t->sites <= SLR_TUNE_MAX_RULES);
    for (size_t i = 0; i < t->sites; i++)
        check_site(&t->site[i]);
    for (size_t i = 0; i < t->count; i++) {
        const struct slr_tune_rule *r = &t->rule[i];
        check_rule(r);
        struct slr_tune_call call = {r->func < 0 ? 2 : r->func, r->bytes.low, r->ranks.high, r->nodes.low,
                                     r->registered == 1};
        const struct slr_tune_rule *first = slr_tune_find(t, &call);
        CHECK(first && first <= r); /* it fits itself, so it or an earlier one is found */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slr_tune_table t;
    struct slr_tune_error e;
    if (slr_tune_parse(&t, (const char *)data, size, &e) == 0) {
        check_table(&t);
    } else {
        CHECK(t.count == 0 && t.rule == NULL && t.sites == 0 && t.site == NULL);
        CHECK(e.line >= 1 && e.line <= line_count(data, size) && e.text[0] && memchr(e.text, 0, sizeof e.text));
    }
    slr_tune_free(&t);
    return 0;
}

#ifndef TUNE_LIBFUZZER
static uint64_t state = 1;

static uint64_t random64(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

enum { ROOM = 1 << 16 };

/* One change: a byte, a piece taken out, a piece doubled, or a word that means something put in. */
static size_t mutate(uint8_t *data, size_t size)
{
    static const char *const words[] = {
        "..", "=", ":", "#", "\n", "99999999999999999999", "any", "K", "channels=", "\r", "\t", "x", ",", "way="};
    size_t at = size ? random64() % size : 0, n = size ? random64() % (size - at) : 0;
    n = n > 64 ? 64 : n;
    switch (random64() % 4) {
    case 0:
        if (size)
            data[at] = (uint8_t)random64();
        return size;
    case 1:
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
    case 2:
        if (size + n > ROOM)
            return size;
        memmove(data + at + n, data + at, size - at);
        return size + n;
    default: {
        const char *word = words[random64() % (sizeof words / sizeof *words)];
        if (size + strlen(word) > ROOM)
            return size;
        memmove(data + at + strlen(word), data + at, size - at);
        memcpy(data + at, word, strlen(word));
        return size + strlen(word);
    }
    }
}

int main(int argc, char **argv)
{
    static uint8_t data[ROOM];
    long each = argc > 1 ? atol(argv[1]) : 0;
    for (int i = 2; i < argc; i++) {
        FILE *f = fopen(argv[i], "r");
        if (!f) {
            perror(argv[i]);
            return 1;
        }
        size_t whole = fread(data, 1, sizeof data, f), size = whole;
        LLVMFuzzerTestOneInput(data, size);
        for (long k = 0; k < each; k++) {
            if (k % 32 == 0) {
                rewind(f);
                size = fread(data, 1, sizeof data, f);
            }
            size = mutate(data, size);
            uint8_t *copy = malloc(size ? size : 1); /* its end is where a sanitizer looks */
            if (!copy)
                return 1;
            memcpy(copy, data, size);
            LLVMFuzzerTestOneInput(copy, size);
            free(copy);
        }
        fclose(f);
    }
    return argc > 2 ? 0 : 1;
}
#endif
