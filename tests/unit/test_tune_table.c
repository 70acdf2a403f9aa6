/* SPDX-License-Identifier: Apache-2.0 */
/* The tune file's parser: what a rule means, where an error is, which rule decides. */
#include <stdio.h>
#include <string.h>
#include "plugin/abi/nccl_common.h"
#include "tests/unit/tune_parse.h"

Test(tune_table, a_rule_with_everything)
{
    struct slr_tune_table t = parse("\n# c\nAllGather bytes=1M..64M ranks=8 nodes=..2 registered=YES : algorithm=Ring "
                                    "protocol=LL128 channels=8 # end\n");
    const struct slr_tune_rule *r = t.rule;
    cr_assert_eq(t.count, 1);
    cr_assert(r->line == 3 && r->func == SLR_NCCL_ALL_GATHER && r->registered == 1);
    cr_assert(r->bytes.low == 1 << 20 && r->bytes.high == 64 << 20);
    cr_assert(r->ranks.low == 8 && r->ranks.high == 8 && r->nodes.low == 0 && r->nodes.high == 2);
    cr_assert(r->algo == SLR_NCCL_RING && r->proto == SLR_NCCL_LL128 && r->channels == 8);
    slr_tune_free(&t);
}

Test(tune_table, what_is_not_given_is_any_and_default)
{
    struct slr_tune_table t = parse("any:channels=default");
    const struct slr_tune_rule *r = t.rule;
    cr_assert(r->func == -1 && r->registered == -1 && r->algo == -1 && r->proto == -1 && r->channels == 0);
    cr_assert(r->bytes.low == 0 && r->bytes.high == UINT64_MAX && r->ranks.high == UINT64_MAX);
    slr_tune_free(&t);
}

Test(tune_table, every_name)
{
    for (int f = 0; f < SLR_NCCL_TUNED_FUNCS; f++)
        cr_assert_eq(slr_tune_func_number(slr_tune_func_name(f), strlen(slr_tune_func_name(f))), f);
    for (int a = -1; a < SLR_NCCL_ALGOS; a++)
        cr_assert_eq(slr_tune_algo_number(slr_tune_algo_name(a), strlen(slr_tune_algo_name(a))), a);
    for (int p = -1; p < SLR_NCCL_PROTOS; p++)
        cr_assert_eq(slr_tune_proto_number(slr_tune_proto_name(p), strlen(slr_tune_proto_name(p))), p);
    cr_assert_str_eq(slr_tune_algo_name(99), "?");
    cr_assert_eq(slr_tune_algo_number("rin", 3), -2);
}

Test(tune_table, sizes)
{
    struct slr_tune_table t = parse("any bytes=0..18446744073709551615 : channels=1\nany bytes=3k.. : channels=1\n"
                                    "any bytes=..2G : channels=1\nany bytes=16777215T : channels=1\n");
    cr_assert(t.rule[0].bytes.high == UINT64_MAX && t.rule[1].bytes.low == 3072 && t.rule[1].bytes.high == UINT64_MAX);
    cr_assert(t.rule[2].bytes.low == 0 && t.rule[2].bytes.high == (uint64_t)2 << 30);
    cr_assert(t.rule[3].bytes.low == (uint64_t)16777215 << 40);
    slr_tune_free(&t);
}

Test(tune_table, errors_name_line_and_expectation)
{
    expect_error("allgather : algorithm=ring\nallgather : algorithm=rign\n", 2, "algorithm=rign");
    expect_error("\n\n\nfly : channels=1", 4, "\"fly\"");
    expect_error("any bytes=2..1 : channels=1", 1, "bytes=2..1");
    expect_error("any bytes=99999999999999999999 : channels=1", 1, "bytes=9999");
    expect_error("any : channels=65", 1, "channels=65");
    expect_error("any : bytes=1", 1, "bytes=1");
    expect_error("any ranks=2 ranks=3 : channels=1", 1, "ranks is given twice");
    expect_error("any bytes=1", 1, "colon");
    expect_error("any :", 1, "nothing is chosen");
    expect_error("allreduce : algorithm=collnetdirect channels=2", 1, "CollNet");
    expect_error("any : channels=1\x02", 1, "value 2");
}

Test(tune_table, a_nul_byte)
{
    struct slr_tune_table t;
    struct slr_tune_error e;
    cr_assert_lt(slr_tune_parse(&t, "any : \0channels=1", 17, &e), 0);
    cr_assert_eq(e.line, 1);
}

Test(tune_table, bounds)
{
    char *text = malloc((SLR_TUNE_MAX_RULES + 1) * 20), *at = text;
    for (unsigned i = 0; i <= SLR_TUNE_MAX_RULES; i++)
        at += sprintf(at, "any : channels=1\n");
    expect_error(text, (int)SLR_TUNE_MAX_RULES + 1, "one rule too many");
    memset(text, ' ', SLR_TUNE_MAX_LINE + 1);
    text[SLR_TUNE_MAX_LINE + 1] = 0;
    expect_error(text, 1, "a line of");
    free(text);
}

Test(tune_table, the_first_that_fits_decides)
{
    struct slr_tune_table t = parse("allgather bytes=..1K ranks=4 : channels=1\nallgather registered=yes : channels=2\n"
                                    "any nodes=2.. : channels=3\n");
    const struct {
        struct slr_tune_call call;
        int line;
    } cases[] = {
        {{SLR_NCCL_ALL_GATHER, 1024, 4, 1, false}, 1}, {{SLR_NCCL_ALL_GATHER, 1025, 4, 1, false}, 0},
        {{SLR_NCCL_ALL_GATHER, 1025, 4, 1, true}, 2},  {{SLR_NCCL_ALL_GATHER, 1, 5, 2, false}, 3},
        {{SLR_NCCL_ALL_REDUCE, 1, 4, 1, true}, 0},     {{SLR_NCCL_ALL_REDUCE, 1, 4, 9, true}, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct slr_tune_rule *r = slr_tune_find(&t, &cases[i].call);
        cr_assert_eq(r ? r->line : 0, cases[i].line, "case %zu", i);
    }
    slr_tune_free(&t);
}

Test(tune_table, the_digest_is_of_the_rules)
{
    struct slr_tune_table a = parse("# one\nany bytes=1024 : channels=1\n"), b = parse("ANY   bytes=1K:channels=1"),
                          c = parse("any bytes=1024 : channels=2"), d = parse("# nothing");
    cr_assert(a.digest == b.digest && a.digest != c.digest && a.digest != d.digest && d.digest != 0 && d.count == 0);
    slr_tune_free(&a);
    slr_tune_free(&b);
    slr_tune_free(&c);
    slr_tune_free(&d);
}
