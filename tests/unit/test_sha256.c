/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256: the examples of FIPS 180-2 and of NIST's CAVP, and every way to cut a message. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"

static void expect(const struct slr_sha256 *h, const char *want)
{
    struct slr_sha256 end = *h;
    uint8_t d[SLR_SHA256_BYTES];
    char hex[2 * SLR_SHA256_BYTES + 1];
    slr_sha256_end(&end, d);
    for (size_t i = 0; i < sizeof d; i++)
        snprintf(hex + 2 * i, 3, "%02x", d[i]);
    cr_expect_str_eq(hex, want);
}

static void expect_text(const void *text, size_t bytes, const char *want)
{
    struct slr_sha256 h;
    slr_sha256_begin(&h);
    slr_sha256_add(&h, text, bytes);
    expect(&h, want);
}

Test(sha256, published_vectors)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    static const char four[] =
        "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmn"
        "opqrsmnopqrstnopqrstu";
    expect_text("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_text("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_text(two, 56, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect_text(four, 112, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    expect_text("\xd3", 1, "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1");
    expect_text("\x11\xaf", 2, "5ca7133fa735326081558ac312c620eeca9970d1e70a4b95533d956f072d1f98");
}

Test(sha256, a_million_a)
{
    static char a[1000];
    struct slr_sha256 h;
    memset(a, 'a', sizeof a);
    slr_sha256_begin(&h);
    for (int i = 0; i < 1000; i++)
        slr_sha256_add(&h, a, sizeof a);
    expect(&h, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* At every length around the ends of blocks, in two parts cut anywhere. */
Test(sha256, in_parts)
{
    uint8_t text[140], whole[SLR_SHA256_BYTES], parts[SLR_SHA256_BYTES];
    struct slr_sha256 h;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)(i * 37 + 11);
    for (size_t n = 0; n <= sizeof text; n++) {
        slr_sha256_begin(&h);
        slr_sha256_add(&h, text, n);
        slr_sha256_end(&h, whole);
        for (size_t cut = 0; cut <= n; cut++) {
            slr_sha256_begin(&h);
            slr_sha256_add(&h, text, cut);
            slr_sha256_add(&h, text + cut, n - cut);
            slr_sha256_end(&h, parts);
            cr_assert_arr_eq(parts, whole, sizeof whole, "%zu bytes cut at %zu", n, cut);
        }
    }
}

Test(sha256, wiped)
{
    struct slr_sha256 h, zero;
    uint8_t d[SLR_SHA256_BYTES];
    memset(&zero, 0, sizeof zero);
    slr_sha256_begin(&h);
    slr_sha256_add(&h, "secret", 6);
    slr_sha256_end(&h, d);
    cr_expect_arr_eq((const char *)&h, (const char *)&zero, sizeof h);
}
