/*
 * evaluate_boxes.c -- detections in a file against annotations in a file: no network, no pictures
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "boxes/coco_metrics.h"
#include "io/coco.h"
#include "io/detections.h"
#include "tandem/train.h"

typedef struct {
    td_coco *coco;
    td_detections found;
    td_coco_truth *truths; /* [coco->n_annotations] */
    int64_t *images;       /* [coco->n_images], ascending ids */
    int64_t *categories;   /* [coco->n_categories], ascending ids */
    td_coco_metrics metrics;
} comparison;

static void release(comparison *c)
{
    td_coco_metrics_release(&c->metrics);
    td_free(c->categories);
    td_free(c->images);
    td_free(c->truths);
    td_detections_release(&c->found);
    td_coco_free(c->coco);
}

static int by_id(const void *a, const void *b)
{
    int64_t p = *(const int64_t *)a, q = *(const int64_t *)b;
    return (p > q) - (p < q);
}

/* Everything as pycocotools takes it; what refers to nothing is left out there, too. */
static td_status read_truths(comparison *c, const char *path)
{
    td_coco_opts opts = { .keeps_odd = true };
    TD_TRY(td_coco_read(path, &opts, &c->coco));
    const td_coco *k = c->coco;
    if (k->n_bad)
        td_log(TD_LOG_WARN, "evaluate",
               "'%s': %" PRId64 " entries cannot be used and are left out; the first: %s", path,
               k->n_bad, k->n_listed ? k->bad[0].text : "");
    c->truths = td_alloc(k->n_annotations + 1, sizeof *c->truths);
    c->images = c->truths ? td_alloc(k->n_images + 1, sizeof *c->images) : NULL;
    c->categories = c->images ? td_alloc(k->n_categories + 1, sizeof *c->categories) : NULL;
    if (!c->categories)
        return TD_ENOMEM;
    for (size_t i = 0; i < k->n_annotations; i++) {
        const td_coco_annotation *a = &k->annotations[i];
        c->truths[i] = (td_coco_truth){ .image = k->images[a->image].id,
                                        .category = k->categories[a->category].id,
                                        .box = { a->x, a->y, a->width, a->height },
                                        .area = a->area,
                                        .is_crowd = a->is_crowd };
    }
    for (size_t i = 0; i < k->n_images; i++)
        c->images[i] = k->images[i].id;
    qsort(c->images, k->n_images, sizeof *c->images, by_id);
    for (size_t i = 0; i < k->n_categories; i++)
        c->categories[i] = k->categories[i].id; /* in order already */
    return TD_OK;
}

/* Pictures must be known.  What is found of other categories counts nowhere, which is said. */
static td_status read_found(comparison *c, const td_evaluate_boxes_opts *o)
{
    const td_coco *k = c->coco;
    int64_t n_strange = 0, strange = 0;
    TD_TRY(td_detections_read(o->detections, &c->found));
    for (size_t i = 0; i < c->found.n; i++) {
        const td_coco_detection *d = &c->found.items[i];
        if (!bsearch(&d->image, c->images, k->n_images, sizeof d->image, by_id))
            return td_error(TD_EFORMAT,
                            "'%s': detection %zu is of image %" PRId64 ", which '%s' does not name",
                            o->detections, i, d->image, o->annotations);
        if (bsearch(&d->category, c->categories, k->n_categories, sizeof d->category, by_id))
            continue;
        strange = n_strange ? strange : d->category;
        n_strange++;
    }
    if (n_strange)
        td_log(TD_LOG_WARN, "evaluate",
               "%" PRId64 " of %zu detections are of categories that '%s' has not and count "
               "nowhere; the first: category %" PRId64,
               n_strange, c->found.n, o->annotations, strange);
    return TD_OK;
}

static td_status compare(comparison *c, const td_evaluate_boxes_opts *o)
{
    TD_TRY(read_truths(c, o->annotations));
    TD_TRY(read_found(c, o));
    const td_coco_metrics_opts opts = { .box_areas = o->box_areas,
                                        .categories = c->categories,
                                        .n_categories = c->coco->n_categories };
    TD_TRY_MSG(td_coco_metrics_compute(c->truths, c->coco->n_annotations, c->found.items,
                                       c->found.n, &opts, &c->metrics),
               "'%s' and '%s'", o->annotations, o->detections);
    return TD_OK;
}

static td_status take_classes(comparison *c, td_evaluate_boxes_result *out)
{
    size_t n = c->metrics.n_classes;
    out->classes = td_alloc(n + 1, sizeof *out->classes);
    if (!out->classes)
        return TD_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const td_coco_class *k = &c->metrics.classes[i];
        char *name = td_copy_text(c->coco->categories[i].name);
        if (!name)
            return TD_ENOMEM;
        out->classes[out->n_classes++] = (td_boxes_class){ .category = k->category,
                                                           .name = name,
                                                           .n_truths = k->n_truths,
                                                           .ap = k->ap,
                                                           .ap50 = k->ap50,
                                                           .ar100 = k->ar100 };
    }
    return TD_OK;
}

td_status td_evaluate_boxes(const td_evaluate_boxes_opts *opts, td_evaluate_boxes_result *out)
{
    comparison c = { 0 };
    *out = (td_evaluate_boxes_result){ 0 };
    if (!opts->annotations || !opts->detections)
        return td_error(TD_EUSAGE, "detections in a file are judged with --annotations FILE and "
                                   "--detections FILE");
    td_status st = compare(&c, opts);
    if (st == TD_OK) {
        memcpy(out->value, c.metrics.value, sizeof out->value);
        out->n_images = (int64_t)c.coco->n_images;
        out->n_truths = (int64_t)c.coco->n_annotations;
        out->n_detections = (int64_t)c.found.n;
        st = take_classes(&c, out);
    }
    release(&c);
    if (st != TD_OK)
        td_evaluate_boxes_release(out);
    return st;
}

void td_evaluate_boxes_release(td_evaluate_boxes_result *r)
{
    for (int64_t i = 0; i < r->n_classes; i++)
        td_free(r->classes[i].name);
    td_free(r->classes);
    *r = (td_evaluate_boxes_result){ 0 };
}

const char *td_evaluate_boxes_key(int i)
{
    return td_coco_key((td_coco_value)i);
}

td_status td_evaluate_boxes_text(const double value[TD_BOXES_VALUES], char **text)
{
    td_text t = { 0 };
    *text = NULL;
    td_coco_metrics_print(value, &t);
    return td_text_take(&t, TD_OK, text);
}
