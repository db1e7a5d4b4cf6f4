/*
 * test_amp_lists.c -- classes by rule, mode and level; edits in their order; conflicts; memory
 *
 * All names of all lists are compared in golden/test_golden_amp.c.
 */
#include <stdio.h>

#include "amp/amp_lists.h"
#include "support/allocations.h"
#include "support/expect.h"

static td_amp_lists *make(td_amp_list_opts o)
{
    td_amp_lists *l;
    expect_ok(td_amp_lists_new(&o, &l));
    return l;
}

/* "ADINC": the classes of the ops in that order (N: none) */
static void expect_classes(td_amp_list_opts o, const char *const *ops, const char *letters)
{
    td_amp_lists *l = make(o);
    for (; *ops; ops++, letters++) {
        td_amp c = td_amp_lists_class(l, *ops);
        char found = c == TD_AMP_NONE ? 'N' : td_amp_class_name(c)[0];
        if (found - (found >= 'a' ? 'a' - 'A' : 0) != *letters)
            fail_msg("'%s' is %s, wanted %c", *ops, td_amp_class_name(c), *letters);
    }
    assert_int_equal(*letters, '\0');
    td_amp_lists_free(l);
}

static const char *const ops[] = { "Conv2D", "Conv3D", "Add",  "Softmax", "Mean", "Sum", "Relu",
                                   "Square", "OneHot", "Tanh", "Exp",     "Cast", NULL };

static void rules_and_modes_have_their_lists(void **state)
{
    (void)state;
    static const struct {
        td_amp_rule rule;
        td_amp_mode mode;
        const char *letters;
    } rows[] = {
        { TD_AMP_RULE_CURRENT, TD_AMP_MODE_FP16, "AAIIDDCNCIDN" },
        { TD_AMP_RULE_2_15, TD_AMP_MODE_FP16, "AAIIDDCNCIDN" },
        { TD_AMP_RULE_CLASSIC, TD_AMP_MODE_FP16, "ANIDDDCNCIDN" },
        { TD_AMP_RULE_CURRENT, TD_AMP_MODE_BF16, "AAIIIICINIDN" },
        { TD_AMP_RULE_2_15, TD_AMP_MODE_BF16, "AAIIDNCINNDN" },
        { TD_AMP_RULE_CLASSIC, TD_AMP_MODE_BF16, "AAIIDNCINNDN" },
        { TD_AMP_RULE_CURRENT, TD_AMP_MODE_CPU, "AAIIDDCNCIDN" },
        { TD_AMP_RULE_CLASSIC, TD_AMP_MODE_CPU, "ANIDDDCNCIDN" },
        { TD_AMP_RULE_CURRENT, TD_AMP_MODE_FP16_CPU, "AAIIDDCICIDN" },
        { TD_AMP_RULE_2_15, TD_AMP_MODE_FP16_CPU, "AAIIDDCICIDN" },
        { TD_AMP_RULE_CLASSIC, TD_AMP_MODE_FP16_CPU, "ANIDDDCICIDN" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_classes((td_amp_list_opts){ .rule = rows[i].rule, .mode = rows[i].mode }, ops,
                       rows[i].letters);
}

static void levels_change_classes(void **state)
{
    (void)state;
    td_amp_list_opts o = { .level = TD_AMP_LEVEL_TENSOR_CORES_ONLY };
    expect_classes(o, ops, "AANNNNNNNNNN");
    o.mode = TD_AMP_MODE_BF16; /* which ignores it */
    expect_classes(o, ops, "AAIIIICINIDN");
    o = (td_amp_list_opts){ .level = TD_AMP_LEVEL_TREAT_INFER_AS_DENY };
    expect_classes(o, ops, "AADDDDCNCDDN");
    o.rule = TD_AMP_RULE_CLASSIC; /* which ignores it */
    expect_classes(o, ops, "ANIDDDCNCIDN");
    o = (td_amp_list_opts){ .level = TD_AMP_LEVEL_UNSAFE_FORCE_ALL };
    expect_classes(o, ops, "AAIIDDCNCIDN");
}

static void edits_are_applied_in_order(void **state)
{
    (void)state;
    static const char *const some[] = { "Sin", "Tanh", "Abs", "Relu", NULL };
    td_amp_list_opts o = { .allow = { .add = { "Sin", NULL }, .remove = { NULL, "Sin" } } };
    expect_classes(o, some, "NICC"); /* newer add, older remove */
    o.allow = (td_amp_edit){ .add = { NULL, "Sin" }, .remove = { "Sin", NULL } };
    expect_classes(o, some, "AICC"); /* the older add comes after the newer remove */
    o.allow = (td_amp_edit){ .add = { "Sin", NULL }, .remove = { "Sin", NULL } };
    expect_classes(o, some, "NICC");
    o = (td_amp_list_opts){ .infer.remove = { "Tanh" }, .clear.add = { "Tanh,Sin,,Tanh" } };
    expect_classes(o, some, "CCCC");
    o = (td_amp_list_opts){ .clear.remove = { "Abs, Relu" } }; /* not trimmed */
    expect_classes(o, some, "NINC");
    o = (td_amp_list_opts){ .level = TD_AMP_LEVEL_TENSOR_CORES_ONLY,
                            .allow.add = { "Sin" },
                            .infer.add = { "Tanh" },
                            .clear.add = { "Relu" } };
    expect_classes(o, some, "ANNN"); /* edits of the emptied lists do nothing */
}

static const char *resolve(const char *name)
{
    return strcmp(name, "tanh") == 0 ? "Tanh" : name;
}

static void names_can_be_ours(void **state)
{
    (void)state;
    static const char *const some[] = { "Tanh", "tanh", "Elu", NULL };
    td_amp_list_opts o = { .infer.remove = { "tanh,Elu" }, .resolve = resolve };
    expect_classes(o, some, "NNN");
    o = (td_amp_list_opts){ .infer.remove = { "tanh" },
                            .deny.add = { "tanh" },
                            .resolve = resolve };
    expect_classes(o, some, "DNI");
}

static void an_op_in_two_lists_is_named(void **state)
{
    (void)state;
    td_amp_lists *l = make((td_amp_list_opts){ .allow.add = { "Exp,Relu" } });
    int n;
    const char *const *names = td_amp_lists_conflicts(l, &n);
    assert_int_equal(n, 4);
    assert_string_equal(names[0], "Exp");
    assert_string_equal(names[1], "Exp");
    assert_string_equal(names[3], "Relu");
    expect_error(td_amp_lists_check(l), TD_EARG,
                 "op 'Exp' is in the allow list and in the deny list");
    td_amp_lists_free(l);
    l = make((td_amp_list_opts){ .allow.add = { "Exp" }, .deny.remove = { "Exp" } });
    expect_ok(td_amp_lists_check(l));
    (void)td_amp_lists_conflicts(l, &n);
    assert_int_equal(n, 0);
    td_amp_lists_free(l);
}

static void names_are_sorted_and_classes_have_words(void **state)
{
    (void)state;
    td_amp_lists *l = make((td_amp_list_opts){ .deny.add = { "Aaa" } });
    int n;
    const char *const *names = td_amp_lists_names(l, TD_AMP_DENY, &n);
    assert_int_equal(n, 10);
    assert_string_equal(names[0], "Aaa");
    for (int i = 1; i < n; i++)
        assert_true(strcmp(names[i - 1], names[i]) < 0);
    assert_null(td_amp_lists_names(l, TD_AMP_NONE, &n));
    assert_int_equal(n, 0);
    assert_int_equal(td_amp_lists_class(l, NULL), TD_AMP_NONE);
    assert_int_equal(td_amp_lists_class(l, ""), TD_AMP_NONE);
    assert_string_equal(td_amp_class_name(TD_AMP_NONE), "unlisted");
    assert_string_equal(td_amp_class_name(TD_AMP_CLEAR), "clear");
    td_amp_lists_free(l);
    td_amp_lists_free(NULL);
}

static td_status make_lists(void)
{
    const td_amp_list_opts o = { .allow = { .add = { "Exp,Sin", "Cos" }, .remove = { "MatMul" } },
                                 .clear.add = { "Sqrt" } };
    td_amp_lists *l;
    const td_status st = td_amp_lists_new(&o, &l);
    assert_int_equal(l != NULL, st == TD_OK);
    td_amp_lists_free(l);
    return st;
}

static void no_allocation_fails_unnoticed(void **state)
{
    (void)state;
    assert_true(td_test_allocations(make_lists, 1000) > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_and_modes_have_their_lists),
        cmocka_unit_test(levels_change_classes),
        cmocka_unit_test(edits_are_applied_in_order),
        cmocka_unit_test(names_can_be_ours),
        cmocka_unit_test(an_op_in_two_lists_is_named),
        cmocka_unit_test(names_are_sorted_and_classes_have_words),
        cmocka_unit_test(no_allocation_fails_unnoticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
