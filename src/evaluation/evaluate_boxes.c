/*
 * evaluate_boxes.c -- compares a file of detections with a file of annotations
 */
#include "evaluation/evaluate_boxes.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/log.h"
#include "coco/coco.h"
#include "coco/detections.h"

typedef struct {
    td_coco *coco;
    td_detections found;
    td_coco_ground_truth *ground_truths; /* [coco->n_annotations] */
    int64_t *images;                     /* [coco->n_images], ascending ids */
    int64_t *categories;                 /* [coco->n_categories], ascending ids */
} comparison;

static void release(comparison *c)
{
    td_free(c->categories);
    td_free(c->images);
    td_free(c->ground_truths);
    td_detections_release(&c->found);
    td_coco_free(c->coco);
}

static int by_id(const void *a, const void *b)
{
    int64_t p = *(const int64_t *)a, q = *(const int64_t *)b;
    return (p > q) - (p < q);
}

/*
 * Read annotations as pycocotools does, which ignores those of unknown images or categories, too.
 */
static td_status read_ground_truths(comparison *c, const char *path)
{
    td_coco_opts opts = { .keeps_invalid = true };
    TD_TRY(td_coco_read(path, &opts, &c->coco));
    const td_coco *k = c->coco;
    if (k->n_bad)
        td_log(TD_LOG_WARN, "evaluate", "'%s': skipped %" PRId64 " invalid entries, the first: %s",
               path, k->n_bad, k->n_listed ? k->bad[0].text : "");
    TD_TRY(TD_ALLOC(c->ground_truths, k->n_annotations + 1));
    TD_TRY(TD_ALLOC(c->images, k->n_images + 1));
    TD_TRY(TD_ALLOC(c->categories, k->n_categories + 1));
    for (size_t i = 0; i < k->n_annotations; i++) {
        const td_coco_annotation *a = &k->annotations[i];
        c->ground_truths[i] = (td_coco_ground_truth){ .image = k->images[a->image].id,
                                                      .category = k->categories[a->category].id,
                                                      .box = { a->x, a->y, a->width, a->height },
                                                      .area = a->area,
                                                      .is_crowd = a->is_crowd };
    }
    for (size_t i = 0; i < k->n_images; i++)
        c->images[i] = k->images[i].id;
    qsort(c->images, k->n_images, sizeof *c->images, by_id);
    for (size_t i = 0; i < k->n_categories; i++)
        c->categories[i] = k->categories[i].id; /* already sorted */
    return TD_OK;
}

/*
 * Read the detections.  Their images must be known; those of unknown categories are ignored with a
 * warning.
 */
static td_status read_found(comparison *c, const char *annotations, const char *detections)
{
    const td_coco *k = c->coco;
    int64_t n_unknown = 0, unknown_category = 0;
    TD_TRY(td_detections_read(detections, &c->found));
    for (size_t i = 0; i < c->found.n; i++) {
        const td_coco_detection *d = &c->found.items[i];
        if (!bsearch(&d->image, c->images, k->n_images, sizeof d->image, by_id))
            return td_error(TD_EFORMAT,
                            "'%s': detection %zu names image %" PRId64 ", which '%s' does not have",
                            detections, i, d->image, annotations);
        if (bsearch(&d->category, c->categories, k->n_categories, sizeof d->category, by_id))
            continue;
        unknown_category = n_unknown ? unknown_category : d->category;
        n_unknown++;
    }
    if (n_unknown)
        td_log(TD_LOG_WARN, "evaluate",
               "ignoring %" PRId64
               " of %zu detections whose categories are not in '%s', the first: category %" PRId64,
               n_unknown, c->found.n, annotations, unknown_category);
    return TD_OK;
}

static td_status take_names(const comparison *c, td_boxes_eval *out)
{
    TD_TRY(TD_ALLOC(out->names, out->metrics.n_classes + 1));
    for (size_t i = 0; i < out->metrics.n_classes; i++) { /* both are sorted by id */
        out->names[i] = td_copy_text(c->coco->categories[i].name);
        if (!out->names[i])
            return TD_ENOMEM;
    }
    return TD_OK;
}

td_status td_boxes_compare(const char *annotations, const char *detections, bool box_areas,
                           td_boxes_eval *out)
{
    comparison c = { 0 };
    td_status st;
    *out = (td_boxes_eval){ 0 };
    TD_OUT(read_ground_truths(&c, annotations));
    TD_OUT(read_found(&c, annotations, detections));
    const td_coco_metrics_opts opts = { .box_areas = box_areas,
                                        .categories = c.categories,
                                        .n_categories = c.coco->n_categories };
    st = td_coco_metrics_compute(c.ground_truths, c.coco->n_annotations, c.found.items, c.found.n,
                                 &opts, &out->metrics);
    if (st != TD_OK)
        TD_OUT(td_error_context(st, "'%s' and '%s'", annotations, detections));
    out->n_images = (int64_t)c.coco->n_images;
    out->n_ground_truths = (int64_t)c.coco->n_annotations;
    out->n_detections = (int64_t)c.found.n;
    st = take_names(&c, out);
out:
    release(&c);
    if (st != TD_OK)
        td_boxes_eval_release(out);
    return st;
}

void td_boxes_eval_release(td_boxes_eval *v)
{
    td_texts_free(v->names, v->metrics.n_classes);
    td_coco_metrics_release(&v->metrics);
    *v = (td_boxes_eval){ 0 };
}
