/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"
#include "base/real.h"
#include "base/settings.h"
#include "plugin/comm/control.h"
#include <criterion/criterion.h>
#include <string.h>

static const char name_letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

Test(tables, reasons_have_unique_names_and_docs)
{
    for (int i = 0; i < SLR_R_COUNT; i++) {
        const char *name = slr_reason_name((enum slr_reason)i);
        cr_expect_gt(strlen(name), 0);
        cr_expect_eq(strspn(name, name_letters), strlen(name), "%s", name);
        cr_expect_gt(strlen(slr_reason_doc((enum slr_reason)i)), 0, "%s", name);
        for (int j = 0; j < i; j++)
            cr_expect_str_neq(name, slr_reason_name((enum slr_reason)j));
    }
    cr_expect_str_eq(slr_reason_name(SLR_R_RING), "ring");
    cr_expect_str_eq(slr_reason_name(SLR_R_JOIN_GROUP), "group");
}

Test(tables, status_names_are_unique)
{
    cr_expect_eq(SLR_OK, 0);
    for (int i = 0; i < SLR_STATUS_COUNT; i++) {
        const char *name = slr_status_name((enum slr_status)i);
        cr_expect_eq(strspn(name, name_letters), strlen(name), "%s", name);
        for (int j = 0; j < i; j++)
            cr_expect_str_neq(name, slr_status_name((enum slr_status)j));
    }
}

Test(tables, a_number_outside_a_table_has_a_name_too)
{
    cr_expect_str_eq(slr_reason_name(SLR_R_COUNT), "unknown");
    cr_expect_str_eq(slr_reason_name((enum slr_reason) - 1), "unknown");
    cr_expect_str_eq(slr_reason_doc(SLR_R_COUNT), "not a reason");
    cr_expect_str_eq(slr_status_name(SLR_STATUS_COUNT), "unknown");
}

Test(tables, settings_have_unique_names_and_docs)
{
    for (int i = 0; i < SLR_S_COUNT; i++) {
        const struct slr_setting_row *row = &slr_setting_rows[i];
        cr_expect_eq(strspn(row->name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), strlen(row->name), "%s", row->name);
        cr_expect_gt(strlen(row->doc), 0, "%s", row->name);
        cr_expect_leq(row->min, row->max, "%s", row->name);
        cr_expect_eq(row->kind == SLR_KIND_CHOICE, row->choices[0] != '\0', "%s", row->name);
        for (int j = 0; j < i; j++)
            cr_expect_str_neq(row->name, slr_setting_rows[j].name);
    }
}

Test(tables, the_gate_starts_unresolved)
{
    cr_expect_eq(slr_gate_word, SLR_GATE_UNRESOLVED);
    cr_expect_eq(slr_guard, 0);
    cr_expect_null((void *)slr_real.ncclAllGather);
}

Test(tables, a_row_more_names_another_control_block)
{
    enum { SLR_S_ANOTHER = SLR_S_COUNT };
    enum { MORE = SLR_CONTROL_SETTINGS SLR_ADD_SETTING(ANOTHER, "ANOTHER", BOOL, "on", 0, 1, "", LOCAL, EXPERT, "") };
    _Static_assert(SLR_CONTROL_MAGIC_OF(SLR_CONTROL_MEANING, MORE) != SLR_CONTROL_MAGIC, "a setting");
    _Static_assert(SLR_CONTROL_MAGIC_OF(SLR_CONTROL_MEANING + 1, SLR_CONTROL_SETTINGS) != SLR_CONTROL_MAGIC, "by hand");
}
