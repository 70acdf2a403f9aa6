/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of communicators: equal for equal inputs, different for every other one; and what is shown of a key does not
 * show the key. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include "base/hash.h"
#include "plugin/comm/key.h"

#define MANY 4096

/* All keys that a test has made; each must be new. */
static struct slr_key seen[MANY];
static unsigned count;

static void is_new(struct slr_key k, const char *what)
{
    for (unsigned i = 0; i < count; i++)
        cr_assert(memcmp(&seen[i], &k, sizeof k) != 0, "%s: the same key as number %u", what, i);
    cr_assert_lt(count, MANY);
    seen[count++] = k;
}

static ncclUniqueId some_id(void)
{
    ncclUniqueId id;
    for (size_t i = 0; i < sizeof id.internal; i++)
        id.internal[i] = (char)(i * 7 + 3);
    return id;
}

static void expect_hex(const void *bytes, size_t n, const char *want)
{
    char hex[2 * SLR_SHA256_BYTES + 1] = "";
    for (size_t i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", ((const uint8_t *)bytes)[i]);
    cr_expect_str_eq(hex, want);
}

/* Computed by another implementation of SHA-256: what is hashed is what the header says. */
Test(key, known_answers)
{
    ncclUniqueId id = some_id();
    struct slr_key k = slr_key_of_id(&id, SLR_KEY_INIT_RANK, 8), t = slr_key_token(&k);
    struct slr_label s = slr_key_label(&k, "socket"), n = slr_key_public(&k);
    expect_hex(&k, sizeof k, "859ac66dbf29e170f82cac259a3097475c7476146d1d8e6c8ba046432a9c388a");
    expect_hex(&t, sizeof t, "80334242eb98fb04985da9779ff58e10009fd1254a0af1446d7716d73d3299d0");
    expect_hex(&s, sizeof s, "33849bec392ac0b59c7b3887a437dc86");
    expect_hex(&n, sizeof n, "5fa36a3a15d276a1210872d109142db2");
}

Test(key, every_bit_of_the_id_counts)
{
    ncclUniqueId id = some_id();
    is_new(slr_key_of_id(&id, SLR_KEY_INIT_RANK, 2), "id");
    for (size_t bit = 0; bit < 8 * sizeof id.internal; bit++) {
        id.internal[bit / 8] = (char)(id.internal[bit / 8] ^ 1 << bit % 8);
        is_new(slr_key_of_id(&id, SLR_KEY_INIT_RANK, 2), "bit of the id");
        id.internal[bit / 8] = (char)(id.internal[bit / 8] ^ 1 << bit % 8);
    }
    struct slr_key again = slr_key_of_id(&id, SLR_KEY_INIT_RANK, 2);
    cr_expect_arr_eq(again.byte, seen[0].byte, sizeof again);
}

Test(key, every_input_counts)
{
    ncclUniqueId id = some_id();
    for (int nranks = 1; nranks < 40; nranks++) {
        is_new(slr_key_of_id(&id, SLR_KEY_INIT_RANK, nranks), "number of ranks");
        is_new(slr_key_of_id(&id, SLR_KEY_INIT_RANK_SCALABLE, nranks), "scalable");
        is_new(slr_key_of_id(&id, SLR_KEY_GROW, nranks), "grow");
    }
    for (unsigned parent = 0; parent < 3; parent++)
        for (uint64_t number = 1; number < 12; number++)
            for (int color = 0; color < 12; color++) {
                const int out[3] = {color, color + 1, color + 2};
                is_new(slr_key_of_split(&seen[parent], number, color), "split");
                is_new(slr_key_of_shrink(&seen[parent], number, out, 1, 0), "shrink");
                is_new(slr_key_of_shrink(&seen[parent], number, out, 3, 0), "shrink by more");
                is_new(slr_key_of_shrink(&seen[parent], number, out, 3, 1), "shrink with flags");
            }
}

Test(key, init_all_has_another_one_each_time)
{
    for (int i = 0; i < 100; i++)
        is_new(slr_key_of_all(), "init all");
}

/* No two ways to cut the same bytes into use, parent and data are the same. */
Test(key, parts_do_not_run_into_each_other)
{
    const struct slr_key zero = {{0}};
    is_new(slr_key_derive("a", NULL, "bc", 2), "a, bc");
    is_new(slr_key_derive("ab", NULL, "c", 1), "ab, c");
    is_new(slr_key_derive("abc", NULL, "", 0), "abc");
    is_new(slr_key_derive("", NULL, "abc", 3), "abc as data");
    is_new(slr_key_derive("", NULL, "abc", 4), "abc and a zero");
    is_new(slr_key_derive("", &zero, "abc", 3), "a parent of zeros");
    is_new(slr_key_derive("", NULL, zero.byte, sizeof zero), "zeros as data");
    is_new(slr_key_derive("", &zero, "", 0), "only a parent");
    is_new(slr_key_derive("", NULL, "", 0), "nothing");
}

static void expect_no_bytes_of(const struct slr_key *key, const void *shown, size_t bytes, const char *what)
{
    for (size_t i = 0; i + 4 <= bytes; i++)
        cr_expect(!memmem(key, sizeof *key, (const char *)shown + i, 4), "%s has bytes %zu to %zu of the key", what, i,
                  i + 4);
}

Test(key, what_is_shown_is_not_the_key)
{
    const char *uses[] = {"socket", "name", "other"};
    ncclUniqueId id = some_id();
    struct slr_key k = slr_key_of_id(&id, SLR_KEY_INIT_RANK, 2), token = slr_key_token(&k);
    struct slr_label label[3];
    for (int i = 0; i < 3; i++) {
        label[i] = slr_key_label(&k, uses[i]);
        expect_no_bytes_of(&k, &label[i], sizeof label[i], uses[i]);
        expect_no_bytes_of(&token, &label[i], sizeof label[i], uses[i]);
        for (int j = 0; j < i; j++)
            cr_expect(memcmp(&label[i], &label[j], sizeof *label) != 0, "%s and %s", uses[i], uses[j]);
    }
    expect_no_bytes_of(&k, &token, sizeof token, "token");
}

Test(key, names)
{
    ncclUniqueId id = some_id();
    struct slr_key k = slr_key_of_id(&id, SLR_KEY_INIT_RANK, 2);
    struct slr_label l = slr_key_public(&k);
    char name[9], hex[SLR_LABEL_HEX];
    slr_key_name(&k, name);
    slr_label_hex(&l, hex);
    cr_expect_eq(strlen(hex), 32);
    cr_expect_eq(strlen(name), 8);
    cr_expect_eq(strncmp(hex, name, 8), 0);
}
