/*
 * evaluate_draw.c -- evaluate --draw: images with detected and annotated boxes
 *
 * Detections are in fractions of the image; annotations are in pixels of the annotated size, from
 * which the image's size differs if it was resized later.
 */
#include <math.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/log.h"
#include "data/objects.h"
#include "evaluation/evaluation.h"

#define MIN_SCORE 0.3 /* default, as in detect */

typedef struct {
    td_overlay_box *boxes;
    char (*labels)[80];
    size_t n;
} pen;

static td_status check(const td_evaluation *e)
{
    if (td_dataset_backend(e->ds) != TD_DATA_FOLDER)
        return td_error(TD_EUSAGE, "--draw: '%s' contains tensors, wanted image files",
                        td_dataset_root(e->ds));
    return TD_OK;
}

td_status td_evaluation_open_drawn(td_evaluation *e)
{
    const int64_t limit = e->o.draw_limit, n = td_dataset_count(e->ds);
    if (!e->o.draw)
        return TD_OK;
    TD_TRY(check(e));
    return td_annotated_images_new(e->ds, e->o.draw, true, limit && limit < n ? limit : n,
                                   &e->annotated);
}

/* Size in pixels of the drawn image; *is_stored: the orientation in its Exif data is ignored. */
static td_status find_size(const td_evaluation *e, int64_t sample, const void *bytes, size_t n,
                           int size[2], bool *is_stored)
{
    td_image_info info;
    const td_scene scene = td_dataset_scene(e->ds, sample);
    TD_TRY_MSG(td_image_probe(bytes, n, &info), "'%s'", td_dataset_path(e->ds, sample));
    *is_stored = e->o.input.stored_orientation || td_scene_is_stored(&scene, &info);
    td_image_size(&info, *is_stored, &size[0], &size[1]);
    return TD_OK;
}

static const char *class_name(const td_evaluation *e, int label)
{
    return td_dataset_class_name(e->ds, label - 1);
}

/* Add the detections; the best are drawn last. */
static void add_found(const td_evaluation *e, const td_detection *found, int n, const int size[2],
                      pen *p)
{
    const double least = e->o.draw_min_score < 0 ? MIN_SCORE : e->o.draw_min_score;
    for (int i = n - 1; i >= 0; i--) {
        const td_detection *f = &found[i];
        const td_rect r = f->box;
        const bool is_evaluated =
            f->label <= td_dataset_classes(e->ds) && td_dataset_category(e->ds, f->label) >= 0;
        if (!is_evaluated || !((double)f->score > least))
            continue;
        snprintf(p->labels[p->n], sizeof *p->labels, "%.60s %.2f", class_name(e, f->label),
                 (double)f->score);
        p->boxes[p->n] =
            (td_overlay_box){ .box = { (double)r.xmin * size[0], (double)r.ymin * size[1],
                                       (double)(r.xmax - r.xmin) * size[0],
                                       (double)(r.ymax - r.ymin) * size[1] },
                              .label = p->labels[p->n],
                              .colour = f->label };
        p->n++;
    }
}

static void add_ground_truths(const td_evaluation *e, int64_t sample, const int size[2], pen *p)
{
    int n;
    const td_annotation *t = td_dataset_annotations(e->ds, sample, &n);
    const td_annotated a = td_dataset_annotated(e->ds, sample);
    const double sx = (double)size[0] / a.width, sy = (double)size[1] / a.height;
    for (int i = 0; i < n; i++, t++) {
        snprintf(p->labels[p->n], sizeof *p->labels, "%.60s%s", class_name(e, t->label),
                 t->is_crowd ? " (crowd)" : "");
        p->boxes[p->n] =
            (td_overlay_box){ .box = { t->x * sx, t->y * sy, t->width * sx, t->height * sy },
                              .label = p->labels[p->n],
                              .style = t->is_crowd ? TD_OVERLAY_CROWD : TD_OVERLAY_GROUND_TRUTH };
        p->n++;
    }
}

td_status td_evaluation_draw(void *ctx, int64_t sample, const td_detection *found, int n)
{
    td_evaluation *e = ctx;
    td_status st = TD_OK;
    pen p = { 0 };
    int n_ground_truths;
    const void *bytes;
    const char *path;
    size_t n_bytes;
    int size[2];
    bool is_stored;
    if (e->o.draw_limit && sample >= e->o.draw_limit)
        return TD_OK;
    (void)td_dataset_annotations(e->ds, sample, &n_ground_truths);
    const size_t most = (size_t)n + (size_t)n_ground_truths + 1;
    p.boxes = td_alloc(most, sizeof *p.boxes);
    p.labels = td_alloc(most, sizeof *p.labels);
    if (!p.boxes || !p.labels)
        TD_OUT(TD_ENOMEM);
    TD_OUT(td_sample_read(e->ds, sample, &e->buffers, &bytes, &n_bytes));
    TD_OUT(find_size(e, sample, bytes, n_bytes, size, &is_stored));
    add_found(e, found, n, size, &p);
    add_ground_truths(e, sample, size, &p);
    TD_OUT(td_annotated_images_save(e->annotated, sample, bytes, n_bytes, is_stored, p.boxes, p.n,
                                    &path));
    e->n_drawn++;
out:
    td_free(p.boxes);
    td_free(p.labels);
    return st;
}

td_status td_evaluation_log_drawn(const td_evaluation *e)
{
    int64_t n = e->n_drawn; /* on this rank */
    if (!e->annotated)
        return TD_OK;
    TD_TRY(td_comm_sum_i64(e->comm, &n, 1));
    td_log(TD_LOG_INFO, "evaluate", "wrote %lld annotated images to '%s'", (long long)n, e->o.draw);
    return TD_OK;
}

void td_evaluation_close_drawn(td_evaluation *e)
{
    td_annotated_images_free(e->annotated);
    td_transformer_release(&e->buffers);
}
