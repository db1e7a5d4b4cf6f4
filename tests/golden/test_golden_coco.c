/*
 * test_golden_coco.c -- the twelve COCO numbers against unit_coco.json
 *
 * Twelve images of three classes with crowds and tied scores.  Corners become x, y, width and
 * height in float32, and a ground truth's area is its box's, as the evaluator of the reference has
 * it. There ids are text, so that between equal scores image 10 comes before image 2.
 */
#include <math.h>
#include <stdio.h>

#include "coco/coco_metrics.h"
#include "support/expect.h"
#include "support/golden.h"

enum { IMAGES = 12, MOST = 14 * IMAGES };

#define TOLERANCE 1e-9 /* the file has nine digits */

static const void *part(const td_tensors *t, const char *name, int image, int64_t *n)
{
    char full[32];
    snprintf(full, sizeof full, "%s_%02d", name, image);
    const td_tensor *x = td_tensors_get(t, full);
    assert_non_null(x);
    *n = x->dim[0];
    return x->data;
}

/* Where 0 .. 11 stand when sorted as text. */
static const int place_as_text[IMAGES] = { 0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3 };

/* ymin, xmin, ymax, xmax */
static void set_box(const float *corners, double box[4])
{
    box[0] = corners[1];
    box[1] = corners[0];
    box[2] = corners[3] - corners[1];
    box[3] = corners[2] - corners[0];
}

static void twelve_numbers_agree(void **state)
{
    (void)state;
    static td_coco_ground_truth ground_truths[MOST];
    static td_coco_detection found[MOST];
    size_t n_ground_truths = 0, n_found = 0;
    td_tensors *t = td_golden_tensors("ssd320", "unit_coco.safetensors");
    td_json *wanted = td_golden_json("ssd320", "unit_coco.json");
    for (int p = 0; p < IMAGES; p++) {
        int64_t n;
        const float *boxes = part(t, "gt_boxes", p, &n);
        const int32_t *classes = part(t, "gt_classes", p, &n);
        const int32_t *crowd = part(t, "gt_crowd", p, &n);
        for (int64_t i = 0; i < n; i++) {
            td_coco_ground_truth *g = &ground_truths[n_ground_truths++];
            *g = (td_coco_ground_truth){ .image = place_as_text[p],
                                         .category = classes[i],
                                         .is_crowd = crowd[i] };
            set_box(boxes + 4 * i, g->box);
        }
        boxes = part(t, "det_boxes", p, &n);
        classes = part(t, "det_classes", p, &n);
        const float *scores = part(t, "det_scores", p, &n);
        for (int64_t i = 0; i < n; i++) {
            td_coco_detection *d = &found[n_found++];
            *d = (td_coco_detection){ .image = place_as_text[p],
                                      .category = classes[i],
                                      .score = scores[i] };
            set_box(boxes + 4 * i, d->box);
        }
    }
    td_coco_metrics m;
    td_coco_metrics_opts opts = { .box_areas = true };
    expect_ok(td_coco_metrics_compute(ground_truths, n_ground_truths, found, n_found, &opts, &m));
    assert_int_equal(td_json_count(wanted), TD_COCO_VALUES);
    for (int i = 0; i < TD_COCO_VALUES; i++) {
        double w = td_golden_number(wanted, td_coco_log_name(i));
        if (!(fabs(m.value[i] - w) <= TOLERANCE)) {
            print_error("%s is %.12f, wanted %.9f\n", td_coco_key(i), m.value[i], w);
            fail();
        }
    }
    td_coco_metrics_release(&m);
    td_json_free(wanted);
    td_tensors_free(t);
}

int main(void)
{
    td_golden_require("ssd320");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twelve_numbers_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
