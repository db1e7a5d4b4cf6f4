/*
 * kind_detector.c -- images to /detect give boxes in the format of `tandem detect --json`; tensors
 * are those of the network exported as ONNX
 *
 * Non-maximum suppression runs in take, one image per thread, directly on the program's results:
 * for SSD320 these are 4.9 MB per image, which need not be copied.
 */
#include <string.h>

#include "base/arena.h"
#include "checkpoint/class_list.h"
#include "inference/detector.h"
#include "onnx/onnx_detections.h"
#include "options/field.h"
#include "serve/kind.h"
#include "transforms/object_row.h"

enum { BOXES, SCORES, CLASSES, COUNT }; /* outputs */

/* --- options ---------------------------------------------------------------------------------- */

static const char *const params[] = { "min_score", "nms_iou", "max_per_class",
                                      "max_boxes", "classes", NULL };

/* error messages name the model, not the file */
static td_status choose_classes(const td_service *s, const char *list, td_work *w)
{
    td_box_classes named = *s->classes;
    named.path = s->name;
    td_free(w->is_wanted);
    w->is_wanted = NULL;
    TD_TRY_MSG(td_box_classes_choose(&named, list, &w->is_wanted), "classes");
    return TD_OK;
}

static td_nms_opts limits(const td_service *s, const td_boxes_opts *boxes)
{
    td_nms_opts nms = td_boxes_nms_display(boxes, s->transform.detector);
    const int64_t places = (int64_t)s->n_classes * s->n_anchors;
    nms.total = nms.total < places ? nms.total : (int)places;
    return nms;
}

static td_status options(const td_service *s, const td_request *rq, td_work *w)
{
    td_boxes_opts boxes = s->boxes;
    for (int i = 0; i < rq->n_params; i++) {
        const td_query *p = &rq->params[i];
        const td_field *field = td_field_find(td_box_limits_fields(), p->name);
        TD_TRY(field ? td_field_set_as(field, &boxes, p->value, NULL, p->name)
                     : choose_classes(s, p->value, w));
    }
    w->nms = limits(s, &boxes);
    return TD_OK;
}

/* --- reading ---------------------------------------------------------------------------------- */

static td_status read_row(const td_service *s, td_transformer *buffers, const void *bytes, size_t n,
                          td_work *w, void *row)
{
    int n_ground_truths;
    td_image_info info;
    const td_object_source from = { .bytes = bytes, .n_bytes = n };
    TD_TRY(td_image_probe(bytes, n, &info));
    td_image_size(&info, s->transform.stored_orientation, &w->width, &w->height);
    return td_object_row(buffers, &s->transform, &from, row, &n_ground_truths);
}

static td_status make_room(const td_service *s, td_work *w)
{
    (void)s;
    w->found = td_alloc((size_t)w->n * (size_t)w->nms.total, sizeof *w->found);
    w->n_found = td_alloc((size_t)w->n, sizeof *w->n_found);
    return w->found && w->n_found ? TD_OK : TD_ENOMEM;
}

/* --- computing -------------------------------------------------------------------------------- */

static td_detection *found_at(const td_work *w, int row)
{
    return w->found + (size_t)row * (size_t)w->nms.total;
}

/* drops boxes of classes that were not requested */
static void keep_wanted(const td_service *s, td_work *w, int row, int n)
{
    const bool *is_wanted = w->is_wanted ? w->is_wanted : s->is_wanted;
    td_detection *found = found_at(w, row);
    int n_kept = 0;
    for (int i = 0; i < n; i++)
        if (!is_wanted || is_wanted[found[i].label])
            found[n_kept++] = found[i];
    w->n_found[row] = n_kept;
}

static td_status store_results(const td_service *s, td_nms_pool *nms, const td_row *rows, int n,
                               const float *const results[2])
{
    td_nms_pool_row *images = td_alloc((size_t)n, sizeof *images);
    if (!images)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++)
        images[i] = (td_nms_pool_row){ .opts = &rows[i].work->nms,
                                       .found = found_at(rows[i].work, rows[i].i),
                                       .wants_finite = true };
    td_status st = td_nms_pool_run(nms, results[0], results[1], n, images);
    for (int i = 0; i < n && st == TD_OK; i++) {
        keep_wanted(s, rows[i].work, rows[i].i, images[i].n_found);
        atomic_fetch_add(&rows[i].work->n_bad, !images[i].is_finite);
    }
    td_free(images);
    return st;
}

static bool is_finite(const td_service *s, const td_work *w)
{
    (void)s;
    return atomic_load(&w->n_bad) == 0;
}

/* --- answers ---------------------------------------------------------------------------------- */

static td_status write_lists(const td_service *s, const td_work *w, td_text *out)
{
    td_status st = TD_OK;
    char *text = NULL;
    const int n = w->n_found[0];
    td_coco_results *lists = NULL;
    td_found_box *boxes = td_alloc((size_t)n + 1, sizeof *boxes);
    char(*room)[24] = td_alloc((size_t)n + 1, sizeof *room);
    td_found f = { .n = n, .boxes = boxes, .width = w->width, .height = w->height };
    if (!boxes || !room)
        TD_OUT(TD_ENOMEM);
    for (int i = 0; i < n; i++)
        boxes[i] = td_box_classes_found(s->classes, &w->found[i], w->width, w->height, room[i]);
    td_box_classes_describe(s->classes, &f);
    TD_OUT(td_coco_results_new(&lists));
    TD_OUT(td_coco_results_add(lists, &f, 1));
    TD_OUT(td_coco_results_text(lists, &text));
    td_text_add(out, ", %s}\n", text);
out:
    td_text_free(text);
    td_coco_results_free(lists);
    td_free(boxes);
    td_free(room);
    return st;
}

static void write_boxes(const td_service *s, const td_work *w, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "model", s->name);
    td_text_add(out, ", \"images\": [{\"id\": 1, \"width\": %d, \"height\": %d}]", w->width,
                w->height);
    if (write_lists(s, w, out) != TD_OK)
        out->st = TD_ENOMEM;
}

static int dims(const td_service *s, const td_work *w, int i, int dim[2])
{
    dim[0] = w ? w->nms.total : limits(s, &s->boxes).total;
    dim[1] = 4;
    return i == BOXES ? 2 : i == COUNT ? 0 : 1;
}

/* boxes or scores of one row; `out` is filled with 0 */
static void fill_reals(const td_work *w, int row, int i, float *out)
{
    const td_detection *found = found_at(w, row);
    for (int k = 0; k < w->n_found[row]; k++)
        if (i == BOXES)
            memcpy(out + 4 * k, &found[k].box, 4 * sizeof *out); /* ymin, xmin, ymax, xmax */
        else
            out[k] = found[k].score;
}

static void fill_classes(const td_work *w, int row, int64_t *out)
{
    const td_detection *found = found_at(w, row);
    for (int k = 0; k < w->n_found[row]; k++)
        out[k] = found[k].label;
}

static void fill(const td_service *s, const td_work *w, int i, void *out)
{
    const size_t each = td_output_row(s, w, i);
    for (int row = 0; row < w->n; row++) {
        const size_t at = (size_t)row * each;
        if (i == COUNT)
            ((int64_t *)out)[row] = w->n_found[row];
        else if (i == CLASSES)
            fill_classes(w, row, (int64_t *)out + at);
        else
            fill_reals(w, row, i, (float *)out + at);
    }
}

static void describe(const td_service *s, td_text *out)
{
    const td_nms_opts nms = limits(s, &s->boxes);
    const td_box_classes *c = s->classes;
    td_json_add(out, "min_score", nms.score_min);
    td_json_add(out, "nms_iou", nms.iou);
    td_json_add(out, "max_per_class", nms.per_class);
    td_json_add(out, "max_boxes", nms.total);
    td_text_add(out, ", \"classes\": ");
    if (td_classes_to_json(c->n_names, (const char *const *)c->names, out) != TD_OK)
        out->st = TD_ENOMEM;
}

const td_kind td_kind_detector = {
    .what = "a detector",
    .path = "/detect",
    .missing_output = "finite boxes and scores",
    .page = td_page_of_boxes,
    .params = params,
    .are_for_tensors = true,
    .outputs = { { .name = TD_ONNX_DETECTION_BOXES },
                 { .name = TD_ONNX_DETECTION_SCORES },
                 { .name = TD_ONNX_DETECTION_CLASSES, .is_int = true },
                 { .name = TD_ONNX_NUM_DETECTIONS, .is_int = true } },
    .n_outputs = 4,
    .options = options,
    .read_row = read_row,
    .make_room = make_room,
    .store_results = store_results,
    .is_finite = is_finite,
    .write = write_boxes,
    .dims = dims,
    .fill = fill,
    .describe = describe,
};
