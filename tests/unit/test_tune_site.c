/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of a tune file for call sites, and the names of what consumes a gather. */
#include <cublas_v2.h>
#include <stdio.h>
#include <string.h>
#include "tests/unit/tune_parse.h"

static const struct slr_consumer linear = {
    4096, 8192, 1024, 1, {CUBLAS_OP_T, CUBLAS_OP_N}, {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F}, SLR_CONSUMER_B};

Test(tune_site, a_rule_with_everything)
{
    struct slr_tune_table t = parse(
        "allgather : channels=1\nSite bytes=1M..64M ranks=8 gpu=NVIDIA-H200 ways=7 setup=1F2e gemm=4096x8192x1024 "
        "trans=TN type=bf16,BF16,fp32 gathered=B batch=1 : way=ring cut=12 # by hand\n");
    const struct slr_tune_site *r = t.site;
    cr_assert(t.count == 1 && t.sites == 1 && r->line == 2);
    cr_assert(r->bytes.low == 1 << 20 && r->bytes.high == 64 << 20 && r->ranks.low == 8 && r->ranks.high == 8);
    cr_assert(r->ways == 7 && r->setup == 0x1f2e && !r->nccl && !r->kept);
    cr_assert_str_eq(r->gpu, "NVIDIA-H200");
    cr_assert_str_eq(r->cut, "12");
    cr_assert(slr_consumer_fits(&r->consumer, &linear));
    slr_tune_free(&t);
}

/* Each field of a GEMM tells it apart; a rule that does not name it takes all. */
Test(tune_site, what_fits)
{
    struct slr_tune_table t = parse("site : way=nccl\nsite gemm=none : way=ring\nsite gemm=4096x8192x1024 : way=ring\n"
                                    "site gemm=any type=bf16,bf16,fp32 gathered=b trans=tn batch=1 : way=ring\n");
    const struct slr_consumer none = {0};
    struct slr_consumer other[9];
    for (int i = 0; i < 9; i++)
        other[i] = linear;
    other[0].m++, other[1].n++, other[2].k++, other[3].batch++, other[4].op[0]++, other[5].op[1]++, other[6].type[0]++;
    other[7].type[2]++, other[8].gathered = SLR_CONSUMER_A;
    cr_assert(slr_consumer_fits(&t.site[0].consumer, &linear) && slr_consumer_fits(&t.site[0].consumer, &none));
    cr_assert(slr_consumer_fits(&t.site[1].consumer, &none) && !slr_consumer_fits(&t.site[1].consumer, &linear));
    cr_assert(slr_consumer_fits(&t.site[2].consumer, &linear) && !slr_consumer_fits(&t.site[2].consumer, &none));
    cr_assert(slr_consumer_fits(&t.site[3].consumer, &linear) && !slr_consumer_fits(&t.site[3].consumer, &none));
    for (int i = 0; i < 9; i++) {
        cr_expect(!slr_consumer_fits(&linear, &other[i]), "field %d", i);
        cr_expect_eq(slr_consumer_fits(&t.site[2].consumer, &other[i]), i > 2, "field %d", i);
        cr_expect_eq(slr_consumer_fits(&t.site[3].consumer, &other[i]), i < 3, "field %d", i);
        cr_expect_neq(slr_consumer_hash(&linear), slr_consumer_hash(&other[i]), "field %d", i);
    }
    cr_assert(slr_consumer_hash(&none) == 0 && slr_consumer_hash(&linear) != 0);
    slr_tune_free(&t);
}

Test(tune_site, what_is_written_is_read)
{
    const struct slr_consumer odd = {5, 6, 7, 3, {CUBLAS_OP_C, CUBLAS_OP_T}, {77, CUDA_R_8F_E4M3, CUDA_R_64F}, 0};
    const struct slr_consumer *consumers[] = {&linear, &odd, &(struct slr_consumer){0}, &SLR_CONSUMER_ANY};
    for (int i = 0; i < 8; i++) {
        struct slr_tune_site r = {.bytes = {123, 123},
                                  .ranks = {4, 4},
                                  .ways = 3,
                                  .setup = UINT64_MAX,
                                  .consumer = *consumers[i % 4],
                                  .nccl = i > 3};
        char line[SLR_TUNE_MAX_LINE + 1];
        slr_tune_gpu_word("NVIDIA H200: #1 = \xe9", r.gpu);
        snprintf(r.cut, sizeof r.cut, "%s", i == 0 ? "whole" : "");
        cr_assert_gt(slr_tune_site_write(&r, line, sizeof line), 0);
        struct slr_tune_table t = parse(line);
        cr_assert_eq(t.sites, 1);
        cr_assert(slr_tune_site_same(&t.site[0], &r, true), "%s", line);
        cr_assert(t.site[0].kept && t.site[0].nccl == r.nccl && !strcmp(t.site[0].cut, r.cut), "%s", line);
        slr_tune_free(&t);
    }
}

/* Rules for reduce-scatters and all-reduces are others than those for gathers: without an op, for gathers. */
Test(tune_site, reduce_scatters)
{
    struct slr_tune_table t =
        parse("site bytes=1M gemm=4096x8192x1024 trans=tn type=bf16,bf16,fp32 batch=1 : way=ring cut=b4\n"
              "site op=allgather bytes=1M gemm=4096x8192x1024 : way=nccl\n"
              "site op=ReduceScatter bytes=1M gemm=4096x8192x1024 : way=ring cut=b4\n"
              "site bytes=1M op=reducescatter gemm=none : way=nccl\n"
              "site op=AllReduce bytes=1M gemm=4096x8192x1024 : way=ring cut=b4\n");
    struct slr_consumer made = linear;
    made.gathered = SLR_CONSUMER_C;
    cr_assert(t.sites == 5 && t.site[4].kind == SLR_ALL_REDUCE && t.site[0].kind == SLR_ALL_GATHER &&
              t.site[1].kind == SLR_ALL_GATHER && t.site[2].kind == SLR_REDUCE_SCATTER &&
              t.site[3].kind == SLR_REDUCE_SCATTER);
    cr_assert(slr_consumer_fits(&t.site[2].consumer, &made) && !slr_consumer_fits(&t.site[2].consumer, &linear));
    cr_assert(!slr_consumer_fits(&t.site[3].consumer, &made));
    cr_assert_not(slr_tune_site_same(&t.site[1], &t.site[2], false));
    cr_assert_not(slr_tune_site_same(&t.site[2], &t.site[4], false));
    cr_assert(slr_consumer_fits(&t.site[4].consumer, &made));
    char line[SLR_TUNE_MAX_LINE + 1];
    struct slr_tune_site r = {
        .kind = SLR_REDUCE_SCATTER, .bytes = {123, 123}, .ranks = {4, 4}, .gpu = "a", .ways = 3, .setup = 1};
    r.consumer = made;
    snprintf(r.cut, sizeof r.cut, "b4");
    cr_assert_gt(slr_tune_site_write(&r, line, sizeof line), 0);
    struct slr_tune_table written = parse(line);
    cr_assert(written.sites == 1 && written.site[0].kind == SLR_REDUCE_SCATTER &&
                  slr_tune_site_same(&written.site[0], &r, true),
              "%s", line);
    slr_tune_free(&written);
    slr_tune_free(&t);
}

Test(tune_site, a_line_that_does_not_fit_is_none)
{
    struct slr_tune_site r = {.consumer = linear};
    char line[40];
    cr_assert_eq(slr_tune_site_write(&r, line, sizeof line), 0);
}

Test(tune_site, the_same_conditions)
{
    struct slr_tune_table t = parse(
        "site bytes=1M ranks=2 gpu=a ways=1 setup=1 gemm=2x2x2 : way=ring\nsite bytes=1M ranks=2 gpu=A ways=1 setup=1 "
        "gemm=2x2x2 : way=nccl # kept\nsite bytes=1M ranks=2 gpu=a ways=1 setup=1 gemm=2x2x3 : way=ring\n"
        "site bytes=2M ranks=2 gpu=a ways=1 setup=1 : way=ring\nsite bytes=1M ranks=3 gpu=a ways=1 setup=1 : way=ring\n"
        "site bytes=1M ranks=2 gpu=b ways=1 setup=1 : way=ring\nsite bytes=1M ranks=2 gpu=a ways=2 setup=1 : way=ring\n"
        "site bytes=1M ranks=2 gpu=a ways=1 setup=2 : way=ring\n");
    cr_assert(slr_tune_site_same(&t.site[0], &t.site[1], true));
    cr_assert_not(t.site[1].kept, "a comment of one's own");
    cr_assert(slr_tune_site_same(&t.site[0], &t.site[2], false) && !slr_tune_site_same(&t.site[0], &t.site[2], true));
    for (int i = 3; i < 8; i++)
        cr_expect_not(slr_tune_site_same(&t.site[0], &t.site[i], false), "line %d", i + 1);
    slr_tune_free(&t);
}

Test(tune_site, errors_name_line_and_expectation)
{
    expect_error("site : way=ring\nsite : way=rong\n", 2, "way=rong");
    expect_error("site : cut=2", 1, "no way");
    expect_error("site bytes=1M", 1, "colon");
    expect_error("site :", 1, "nothing is chosen");
    expect_error("site : way=nccl cut=2", 1, "cut=2 with way=nccl");
    expect_error("site : way=ring cut=0123456789abcdef", 1, "at most 15 letters");
    expect_error("site nodes=1 : way=ring", 1, "\"nodes=1\"");
    expect_error("allgather gemm=none : channels=1", 1, "\"gemm=none\"");
    expect_error("site gemm=1x2 : way=ring", 1, "gemm=1x2");
    expect_error("site gemm=1x2x3x4 : way=ring", 1, "gemm=1x2x3x4");
    expect_error("site gemm=0x2x3 : way=ring", 1, "gemm=0x2x3");
    expect_error("site gemm=none trans=tn : way=ring", 1, "gemm=none");
    expect_error("site trans=t : way=ring", 1, "trans=t");
    expect_error("site trans=tx : way=ring", 1, "trans=tx");
    expect_error("site type=bf17 : way=ring", 1, "type=bf17");
    expect_error("site type=bf16,bf16 : way=ring", 1, "type=bf16,bf16");
    expect_error("site type=bf16,bf16,bf16,bf16 : way=ring", 1, "type=bf16,bf16,bf16,bf16");
    expect_error("site gathered=c : way=ring", 1, "gathered=c");
    expect_error("site batch=0 : way=ring", 1, "batch=0");
    expect_error("site ways=0 : way=ring", 1, "ways=0");
    expect_error("site setup=xyz : way=ring", 1, "setup=xyz");
    expect_error("site setup=11112222333344445 : way=ring", 1, "16 hexadecimal");
    expect_error("site gpu= : way=ring", 1, "gpu=");
    expect_error("site : way=ring\nsite op=reduce : way=ring", 2,
                 "op=reduce: expected allgather, reducescatter or allreduce");
    expect_error("site op= : way=ring", 1, "op=");
    expect_error("site op=allreduce gathered=b : way=ring", 1, "gathered with op=allreduce");
    expect_error("site op=reducescatter gathered=b : way=ring", 1, "gathered with op=reducescatter");
    expect_error("site gathered=b op=reducescatter : way=ring", 1, "gathered with op=reducescatter");
}

/* NCCL's choices do not depend on rules for sites, so ranks do not compare these. */
Test(tune_site, the_digest_is_of_the_rules_for_nccl)
{
    struct slr_tune_table a = parse("any : channels=1\n"), b = parse("site : way=ring\nany : channels=1\n");
    cr_assert_eq(a.digest, b.digest);
    slr_tune_free(&a);
    slr_tune_free(&b);
}

Test(tune_site, both_kinds_share_the_bound)
{
    char *text = malloc((SLR_TUNE_MAX_RULES + 1) * 20), *at = text;
    for (unsigned i = 0; i <= SLR_TUNE_MAX_RULES; i++)
        at += sprintf(at, i % 2 ? "any : channels=1\n" : "site : way=ring\n");
    expect_error(text, (int)SLR_TUNE_MAX_RULES + 1, "one rule too many");
    free(text);
}
