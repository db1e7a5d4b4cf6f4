/* test_amp_env.c -- Tandem's variables, TensorFlow's, which wins, what is malformed */
#include <stdlib.h>

#include "amp/amp_env.h"
#include "support/expect.h"

#define TF "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_"

/* An environment: NAME, VALUE, NAME, VALUE, NULL. */
static const char *look_up(void *ctx, const char *name)
{
    for (const char **row = ctx; *row; row += 2)
        if (strcmp(row[0], name) == 0)
            return row[1];
    return NULL;
}

static td_amp_env read_ok(const char **rows)
{
    td_amp_env e;
    expect_ok(td_amp_env_read(look_up, rows, &e));
    return e;
}

#define READ(...) read_ok((const char *[]){ __VA_ARGS__, NULL })

static void nothing_set_says_nothing(void **state)
{
    (void)state;
    td_amp_env e = READ("HOME", "/");
    assert_int_equal(e.amp, TD_AMP_UNSET);
    assert_int_equal(e.loss_scaling, TD_AMP_UNSET);
    assert_int_equal(e.half, TD_DT_NONE);
    assert_false(e.has_level);
    assert_false(e.has_rule);
    assert_null(e.log_path);
    assert_null(e.allow.add[0]);
    e = READ("TANDEM_AMP", "", "TANDEM_AMP_LEVEL", "", TF "LOG_PATH", "");
    assert_int_equal(e.amp, TD_AMP_UNSET);
    assert_false(e.has_level);
    assert_null(e.log_path);
}

static void tandem_amp_switches_and_chooses(void **state)
{
    (void)state;
    assert_int_equal(READ("TANDEM_AMP", "0").amp, TD_AMP_OFF);
    td_amp_env e = READ("TANDEM_AMP", "1");
    assert_int_equal(e.amp, TD_AMP_ON);
    assert_int_equal(e.half, TD_DT_NONE);
    e = READ("TANDEM_AMP", "bf16");
    assert_int_equal(e.amp, TD_AMP_ON);
    assert_int_equal(e.half, TD_DT_BF16);
    assert_int_equal(READ("TANDEM_AMP", "FP16").half, TD_DT_F16);
}

static void tensorflows_switches_are_aliases(void **state)
{
    (void)state;
    td_amp_env e = READ("TF_ENABLE_AUTO_MIXED_PRECISION", "1");
    assert_int_equal(e.amp, TD_AMP_ON);
    assert_int_equal(e.loss_scaling, TD_AMP_ON);
    e = READ("TF_ENABLE_AUTO_MIXED_PRECISION", "true",
             "TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE", "False");
    assert_int_equal(e.amp, TD_AMP_OFF);
    assert_int_equal(e.loss_scaling, TD_AMP_ON);
    e = READ("TF_ENABLE_AUTO_MIXED_PRECISION", "1", "TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING",
             "0");
    assert_int_equal(e.amp, TD_AMP_ON);
    assert_int_equal(e.loss_scaling, TD_AMP_OFF);
    assert_int_equal(READ("TF_ENABLE_AUTO_MIXED_PRECISION", "yes").amp, TD_AMP_UNSET);
    assert_int_equal(READ(TF "EMULATE_FP16", "0").emulate, TD_AMP_OFF);
}

static void tandems_names_win(void **state)
{
    (void)state;
    td_amp_env e = READ("TANDEM_AMP", "0", "TF_ENABLE_AUTO_MIXED_PRECISION", "1",
                        "TANDEM_AMP_LEVEL", "default", TF "LEVEL", "TENSOR_CORES_ONLY",
                        "TANDEM_AMP_LOG_PATH", "here", TF "LOG_PATH", "there");
    assert_int_equal(e.amp, TD_AMP_OFF);
    assert_int_equal(e.loss_scaling, TD_AMP_ON);
    assert_true(e.has_level);
    assert_int_equal(e.level, TD_AMP_LEVEL_DEFAULT);
    assert_string_equal(e.log_path, "here");
    e = READ("TANDEM_AMP_DENY_ADD", "relu", TF "DENYLIST_ADD", "Relu", TF "BLACKLIST_ADD", "Relu6");
    assert_string_equal(e.deny.add[0], "relu");
    assert_null(e.deny.add[1]);
    assert_string_equal(READ(TF "LOG_PATH", "there").log_path, "there");
}

static void levels_and_rules_have_names(void **state)
{
    (void)state;
    td_amp_env e = READ("TANDEM_AMP_LEVEL", "UNSAFE_force_ALL", "TANDEM_AMP_RULE", "2.15");
    assert_int_equal(e.level, TD_AMP_LEVEL_UNSAFE_FORCE_ALL);
    assert_true(e.has_rule);
    assert_int_equal(e.rule, TD_AMP_RULE_2_15);
    assert_int_equal(READ("TANDEM_AMP_RULE", "classic").rule, TD_AMP_RULE_CLASSIC);
    assert_int_equal(READ("TANDEM_AMP_LEVEL", "treat_infer_as_deny").level,
                     TD_AMP_LEVEL_TREAT_INFER_AS_DENY);
    assert_int_equal(READ(TF "LEVEL", "tensor_cores_only").level, TD_AMP_LEVEL_TENSOR_CORES_ONLY);
    e = READ(TF "LEVEL", "SOMETHING");
    assert_false(e.has_level);
    assert_int_equal(e.level, TD_AMP_LEVEL_DEFAULT);
}

static void edits_come_in_all_spellings(void **state)
{
    (void)state;
    td_amp_env e = READ("TANDEM_AMP_ALLOW_REMOVE", "linear", TF "INFERLIST_ADD", "Square,Rsqrt",
                        TF "GRAYLIST_ADD", "Sin", TF "WHITELIST_ADD", "Exp", TF "BLACKLIST_REMOVE",
                        "Exp", TF "CLEARLIST_REMOVE", "Abs, Relu");
    assert_string_equal(e.allow.remove[0], "linear");
    assert_null(e.allow.add[0]);
    assert_string_equal(e.allow.add[1], "Exp");
    assert_string_equal(e.infer.add[0], "Square,Rsqrt");
    assert_string_equal(e.infer.add[1], "Sin");
    assert_string_equal(e.deny.remove[1], "Exp");
    assert_string_equal(e.clear.remove[0], "Abs, Relu");
    assert_null(e.clear.add[0]);
}

static void expect_bad(const char *name, const char *value, const char *part)
{
    td_amp_env e;
    const char *rows[] = { name, value, NULL };
    expect_error(td_amp_env_read(look_up, rows, &e), TD_EUSAGE, part);
    assert_int_equal(e.amp, TD_AMP_UNSET);
}

static void malformed_values_of_ours_are_errors(void **state)
{
    (void)state;
    expect_bad("TANDEM_AMP", "yes", "TANDEM_AMP is 'yes', wanted 0, 1, bf16 or fp16");
    expect_bad("TANDEM_AMP_LEVEL", "high",
               "TANDEM_AMP_LEVEL is 'high', wanted default, tensor_cores_only");
    expect_bad("TANDEM_AMP_RULE", "1.15", "TANDEM_AMP_RULE is '1.15', wanted current, 2.15 or");
}

static void the_process_is_asked_by_default(void **state)
{
    (void)state;
    td_amp_env e;
    assert_int_equal(setenv("TANDEM_AMP", "fp16", 1), 0);
    expect_ok(td_amp_env_read(NULL, NULL, &e));
    assert_int_equal(e.half, TD_DT_F16);
    assert_int_equal(unsetenv("TANDEM_AMP"), 0);
    expect_ok(td_amp_env_read(NULL, NULL, &e));
    assert_int_equal(e.half, TD_DT_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_set_says_nothing),
        cmocka_unit_test(tandem_amp_switches_and_chooses),
        cmocka_unit_test(tensorflows_switches_are_aliases),
        cmocka_unit_test(tandems_names_win),
        cmocka_unit_test(levels_and_rules_have_names),
        cmocka_unit_test(edits_come_in_all_spellings),
        cmocka_unit_test(malformed_values_of_ours_are_errors),
        cmocka_unit_test(the_process_is_asked_by_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
