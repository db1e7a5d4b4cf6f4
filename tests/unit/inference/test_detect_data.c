/*
 * test_detect_data.c -- what a detector's jobs share: rules about the twelve, category ids in a
 * weight file, and what post-processing the options mean
 */
#include "inference/detect_data.h"
#include "inference/detector.h"
#include "options/field.h"
#include "support/allocations.h"
#include "support/expect.h"

static const double boxes[TD_BOX_METRICS] = { 0.5, 0.9, 0.4, 0.3, -1,  0.6,
                                              0.1, 0.2, 0.3, 0.4, 0.5, 0.6 };

static void rules_are_about_the_twelve(void **state)
{
    (void)state;
    expect_ok(td_boxes_require("AP50>=0.9", boxes));
    expect_ok(td_boxes_require("AP<=0.5", boxes));
    expect_ok(td_boxes_require("ARl>=0.6", boxes));
    expect_error(td_boxes_require("AP50>=0.91", boxes), TD_EREQUIRED, "AP50 is 0.9000, AP50>=0.91");
    expect_error(td_boxes_require("APm>=0", boxes), TD_EREQUIRED, "APm is not defined");
    expect_error(td_boxes_require_check("APx>=0"), TD_EUSAGE, "metric 'APx', wanted");
    expect_error(td_boxes_require_check("AP>0.5"), TD_EUSAGE, "AP50>=0.9");
    expect_error(td_boxes_require_check("AP>=x"), TD_EUSAGE, "AP50>=0.9");
}

/* the same rule for every job */
static void options_of_the_other_kind_are_refused(void **state)
{
    (void)state;
    td_network_option rows[] = { { false, false, "--topk" }, { true, false, "--draw" } };
    expect_ok(td_network_options_check(rows, 2, true, "w"));
    expect_ok(td_network_options_check(rows, 2, false, "w"));
    rows[0].is_set = true;
    expect_ok(td_network_options_check(rows, 2, false, "w"));
    expect_error(td_network_options_check(rows, 2, true, "w"), TD_EUSAGE, "--topk");
    assert_non_null(strstr(td_error_message(), "'w'"));
    rows[1].is_set = true;
    expect_error(td_network_options_check(rows, 2, false, "w"), TD_EUSAGE, "--draw");
}

static void the_limit_that_is_set_is_named(void **state)
{
    (void)state;
    char room[TD_OPTION_NAME];
    td_boxes_opts o;
    td_fields_default(td_boxes_fields(), &o);
    o.box_areas = true; /* not a limit */
    assert_null(td_box_limit_set(&o, room));
    o.max_boxes = 3;
    assert_string_equal(td_box_limit_set(&o, room), "--max-boxes");
    o.min_score = 0;
    assert_string_equal(td_box_limit_set(&o, room), "--min-score");
}

static void categories_come_from_json(void **state)
{
    (void)state;
    static const char *const bad[] = { "{}", "[1", "[1.5]", "[\"a\"]", "3" };
    int n;
    int64_t *ids;
    expect_ok(td_boxes_categories_from_json("[1, 18, 90]", "w", &n, &ids));
    assert_int_equal(n, 3);
    assert_int_equal(ids[1], 18);
    td_free(ids);
    expect_ok(td_boxes_categories_from_json(NULL, "w", &n, &ids));
    assert_int_equal(n, 0);
    assert_null(ids);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_error(td_boxes_categories_from_json(bad[i], "w", &n, &ids), TD_EFORMAT, "'w'");
        assert_null(ids);
        assert_int_equal(n, 0);
    }
}

static td_status read_categories(void)
{
    int n;
    int64_t *ids;
    const td_status st = td_boxes_categories_from_json("[1, 2, 3]", "w", &n, &ids);
    td_free(ids);
    return st;
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    td_test_allocations(read_categories, 50);
}

static void what_is_not_said_is_the_detectors_own(void **state)
{
    (void)state;
    td_boxes_opts o;
    td_fields_default(td_boxes_fields(), &o);
    td_nms_opts n = td_boxes_nms(&o, TD_DETECTOR_SSD320);
    assert_true(n.score_min == 1e-8 && n.iou == 0.6);
    assert_int_equal(n.per_class, 100);
    assert_int_equal(n.total, 100);
    n = td_boxes_nms(&o, TD_DETECTOR_SSD300);
    assert_true(n.score_min == 0.05 && n.iou == 0.5);
    assert_int_equal(n.total, 200);
    o.min_score = 0;
    o.nms_iou = 0.3;
    o.max_per_class = 7;
    o.max_boxes = 9;
    n = td_boxes_nms(&o, TD_DETECTOR_SSD300);
    assert_true(n.score_min == 0 && n.iou == 0.3);
    assert_int_equal(n.per_class, 7);
    assert_int_equal(n.total, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_about_the_twelve),
        cmocka_unit_test(options_of_the_other_kind_are_refused),
        cmocka_unit_test(the_limit_that_is_set_is_named),
        cmocka_unit_test(categories_come_from_json),
        cmocka_unit_test(memory_may_fail_at_every_call),
        cmocka_unit_test(what_is_not_said_is_the_detectors_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
