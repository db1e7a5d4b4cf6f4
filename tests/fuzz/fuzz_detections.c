/*
 * fuzz_detections.c -- any bytes as a result file: an error in words, or detections that count
 *
 * What was read is compared with ground truths made of it, which must not fail unless a number is
 * too large for areas.
 */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "coco/detections.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check_one(const td_coco_detection *d)
{
    TD_CHECK(isfinite(d->score));
    for (int i = 0; i < 4; i++)
        TD_CHECK(isfinite(d->box[i]));
}

/* Every third detection is there, too. */
static void evaluate(const td_detections *d)
{
    td_coco_metrics m;
    size_t n = (d->n + 2) / 3;
    td_coco_ground_truth *ground_truths = td_alloc(n + 1, sizeof *ground_truths);
    if (!ground_truths)
        return;
    for (size_t i = 0; i < n; i++) {
        const td_coco_detection *of = &d->items[3 * i];
        ground_truths[i] = (td_coco_ground_truth){ .image = of->image,
                                                   .category = of->category,
                                                   .is_crowd = i % 5 == 4 };
        memcpy(ground_truths[i].box, of->box, sizeof of->box);
    }
    const td_coco_metrics_opts opts = { .box_areas = true };
    td_status st = td_coco_metrics_compute(ground_truths, n, d->items, d->n, &opts, &m);
    TD_CHECK(st == TD_OK || st == TD_ENUMERIC);
    for (int i = 0; i < TD_COCO_VALUES && st == TD_OK; i++)
        TD_CHECK(m.value[i] == -1 || (m.value[i] >= 0 && m.value[i] <= 1));
    td_coco_metrics_release(&m);
    td_free(ground_truths);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    td_detections d;
    td_error_clear();
    td_status st = td_detections_parse(data, n_bytes, "input", &d);
    if (st != TD_OK) {
        TD_CHECK(!d.items && !d.n && *td_error_message());
        return 0;
    }
    for (size_t i = 0; i < d.n; i++)
        check_one(&d.items[i]);
    evaluate(&d);
    td_detections_release(&d);
    return 0;
}
