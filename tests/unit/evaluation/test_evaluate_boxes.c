/* test_evaluate_boxes.c -- a file of detections against a file of annotations */
#include "evaluation/evaluate_boxes.h"

#include <stdio.h>

#include "base/file_io.h"
#include "base/log.h"
#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

#define GROUND_TRUTH(id, image, category, box)                                                     \
    "{\"id\": " id ", \"image_id\": " image ", \"category_id\": " category ", \"bbox\": " box "}"
#define FOUND(image, category, box, score)                                                         \
    "{\"image_id\": " image ", \"category_id\": " category ", \"bbox\": " box                      \
    ", \"score\": " score "}"
#define SQUARE "[10, 10, 50, 50]"

/* two images, of which one is empty, and three classes, of which one is */
static const char ground_truths[] =
    "{\"images\": [{\"id\": 7}, {\"id\": 0}], \"annotations\": [" GROUND_TRUTH(
        "1", "7", "90", SQUARE) ", " GROUND_TRUTH("2", "7", "4",
                                                  SQUARE) "], \"categories\": [{\"id\": 90, "
                                                          "\"name\": \"dog\"}, {\"id\": 4}, "
                                                          "{\"id\": 17, \"name\": \"cat\"}]}";

static const char *put(const char *name, const char *text)
{
    const char *path = td_scratch_path(name);
    expect_ok(td_file_write(path, text, strlen(text)));
    return path;
}

static td_status compare(const char *annotations, const char *detections, td_boxes_eval *v)
{
    const char *gt = put("gt.json", annotations);
    return td_boxes_compare(gt, put("dt.json", detections), false, v);
}

static char said[512];

static void hear(void *ctx, td_log_level level, const char *module, const char *text)
{
    (void)ctx;
    (void)level;
    (void)module;
    snprintf(said, sizeof said, "%s", text);
}

static int hush(void **state)
{
    (void)state;
    td_log_set_sink(hear, NULL);
    said[0] = 0;
    return 0;
}

static void files_are_compared(void **state)
{
    (void)state;
    td_boxes_eval v;
    expect_ok(compare(ground_truths, "[" FOUND("7", "90", SQUARE, "0.5") "]", &v));
    assert_string_equal(said, "");
    assert_true(v.metrics.value[TD_COCO_AP] > 0.499 && v.metrics.value[TD_COCO_AP] < 0.501);
    assert_int_equal(v.n_images, 2);
    assert_int_equal(v.n_ground_truths, 2);
    assert_int_equal(v.n_detections, 1);
    assert_int_equal(v.metrics.n_classes, 3);
    assert_string_equal(v.names[0], "4");
    assert_string_equal(v.names[1], "cat");
    assert_string_equal(v.names[2], "dog");
    assert_true(v.metrics.classes[0].ap == 0);
    assert_true(v.metrics.classes[1].ap == -1);
    assert_true(v.metrics.classes[2].ap > 0.999);
    td_boxes_eval_release(&v);

    expect_ok(compare(ground_truths, "[]", &v));
    assert_true(v.metrics.value[TD_COCO_AP] == 0 && v.metrics.value[TD_COCO_APL] == -1);
    td_boxes_eval_release(&v);
}

static void what_counts_nowhere_is_said(void **state)
{
    (void)state;
    td_boxes_eval v;
    expect_ok(compare(ground_truths,
                      "[" FOUND("7", "90", SQUARE, "0.5") ", " FOUND(
                          "7", "5", SQUARE, "0.9") ", " FOUND("0", "91", SQUARE, "0.9") "]",
                      &v));
    assert_non_null(strstr(said, "2 of 3 detections"));
    assert_non_null(strstr(said, "category 5"));
    assert_true(v.metrics.classes[2].ap > 0.999);
    td_boxes_eval_release(&v);

    said[0] = 0;
    expect_ok(compare(
        "{\"images\": [{\"id\": 7}], \"annotations\": [" GROUND_TRUTH(
            "1", "7", "4",
            SQUARE) ", " GROUND_TRUTH("2", "8", "4",
                                      SQUARE) ", " GROUND_TRUTH("3", "7", "5",
                                                                SQUARE) "], \"categories\": "
                                                                        "[{\"id\": 4}]}",
        "[" FOUND("7", "4", SQUARE, "1") "]", &v));
    assert_non_null(strstr(said, "2 invalid entries, the first: annotation 2"));
    assert_true(v.metrics.value[TD_COCO_AP] > 0.999);
    td_boxes_eval_release(&v);
}

static void what_is_wrong_is_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *detections;
        td_status st;
        const char *part;
    } rows[] = {
        { "[" FOUND("7", "4", SQUARE, "1") ", " FOUND("8", "4", SQUARE, "1") "]", TD_EFORMAT,
          "dt.json': detection 1 names image 8, which '" },
        { "[" FOUND("7", "4", "[0, 0, 1e200, 1]", "1") "]", TD_ENUMERIC, "detection 0 has" },
        { "[" FOUND("7", "4", SQUARE, "null") "]", TD_EFORMAT, "score is null" },
        { "[" FOUND("7", "4", SQUARE, "1"), TD_EFORMAT, "dt.json" },
        { "", TD_EFORMAT, "dt.json' is empty" },
    };
    td_boxes_eval v;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_error(compare(ground_truths, rows[i].detections, &v), rows[i].st, rows[i].part);
        assert_null(v.names);
    }
    expect_error(compare("{}", "[]", &v), TD_EFORMAT, "gt.json");
    expect_error(compare(ground_truths + 1, "[]", &v), TD_EFORMAT, "gt.json");
    expect_error(td_boxes_compare(td_scratch_path("absent.json"), put("dt.json", "[]"), false, &v),
                 TD_ENOTFOUND, "absent.json");
    expect_error(
        td_boxes_compare(put("gt.json", ground_truths), td_scratch_path("absent.json"), false, &v),
        TD_ENOTFOUND, "absent.json");
}

static td_status run_once(void)
{
    td_boxes_eval v;
    td_status st =
        td_boxes_compare(td_scratch_path("gt.json"), td_scratch_path("dt.json"), true, &v);
    td_boxes_eval_release(&v);
    return st;
}

static void survives_failed_allocations(void **state)
{
    (void)state;
    put("gt.json", ground_truths);
    put("dt.json", "[" FOUND("7", "90", SQUARE, "0.5") "]");
    assert_true(td_test_allocations(run_once, 400) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(files_are_compared, hush),
        cmocka_unit_test_setup(what_counts_nowhere_is_said, hush),
        cmocka_unit_test_setup(what_is_wrong_is_an_error, hush),
        cmocka_unit_test_setup(survives_failed_allocations, hush),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
