/*
 * detector.c -- runs a detector's network and its non-maximum suppression
 *
 * The program has one batch size; a smaller batch is copied into a buffer of full size.
 */
#include "inference/detector.h"

#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "inference/nms_pool.h"
#include "optim/inference_program.h"

struct td_detector_runner {
    td_program *program;
    td_anchors *anchors;
    int batch, columns; /* columns: classes and the background */
    size_t image_bytes;
    char *images; /* [batch] rows of image_bytes, for smaller batches */
    td_nms_pool *nms_pool;
    td_detection *found;   /* [batch, TD_NMS_TOTAL_MAX] */
    td_nms_pool_row *rows; /* [batch] */
    double boxes_s;        /* post-processing in the last run */
};

td_nms_opts td_boxes_nms(const td_boxes_opts *o, td_detector kind)
{
    td_nms_opts n = td_nms_defaults(kind);
    if (o->min_score >= 0)
        n.score_min = o->min_score;
    if (o->nms_iou >= 0)
        n.iou = o->nms_iou;
    if (o->max_per_class > 0)
        n.per_class = o->max_per_class;
    if (o->max_boxes > 0)
        n.total = o->max_boxes;
    return n;
}

td_nms_opts td_boxes_nms_display(const td_boxes_opts *o, td_detector kind)
{
    td_nms_opts n = td_boxes_nms(o, kind);
    if (o->min_score < 0)
        n.score_min = 0.3; /* as in the reference's example for SSD300 */
    return n;
}

static td_status compile(td_detector_runner *f, const td_model_opts *model, td_device *dev,
                         const td_detector_runner_opts *opts)
{
    const td_inference_opts o = {
        .model = model, .batch = opts->batch, .norm = opts->norm, .is_whole = opts->is_whole
    };
    const td_compile_opts c = { .amp = opts->amp,
                                .skip = opts->skip_passes,
                                .dump_after = opts->dump_after,
                                .planned_runs = opts->planned_runs };
    return td_inference_compile(&o, dev, &c, &f->program);
}

static td_status make_room(td_detector_runner *f, const td_model_opts *model, bool takes_pixels)
{
    const size_t side = (size_t)model->image_size, n = (size_t)f->batch;
    f->image_bytes = 3 * side * side * (takes_pixels ? 1 : sizeof(float));
    TD_TRY(td_alloc_to(&f->images, n, f->image_bytes));
    TD_TRY(td_alloc_to(&f->found, n, TD_NMS_TOTAL_MAX * sizeof *f->found));
    TD_TRY(TD_ALLOC(f->rows, n));
    return td_nms_pool_new(f->anchors, f->columns,
                           td_threads() < f->batch ? td_threads() : f->batch, &f->nms_pool);
}

td_status td_detector_runner_new(const td_model_opts *model, td_device *dev,
                                 const td_detector_runner_opts *opts, td_detector_runner **out)
{
    td_status st = TD_OK;
    *out = NULL;
    td_detector_runner *f = TD_NEW(td_detector_runner);
    if (!f)
        return TD_ENOMEM;
    f->batch = opts->batch;
    f->columns = model->num_classes + 1;
    TD_OUT(td_anchors_new(td_model_detector(model), model->image_size, &f->anchors));
    TD_OUT(compile(f, model, dev, opts));
    TD_OUT(make_room(f, model, opts->norm != NULL));
    *out = f;
    f = NULL;
out:
    td_detector_runner_free(f);
    return st;
}

void td_detector_runner_free(td_detector_runner *f)
{
    if (!f)
        return;
    td_nms_pool_free(f->nms_pool);
    td_free(f->found);
    td_free(f->rows);
    td_free(f->images);
    td_program_free(f->program);
    td_anchors_free(f->anchors);
    td_free(f);
}

td_program *td_detector_runner_program(td_detector_runner *f)
{
    return f->program;
}

const td_anchors *td_detector_runner_anchors(const td_detector_runner *f)
{
    return f->anchors;
}

/* --- running ---------------------------------------------------------------------------------- */

td_status td_detector_runner_run(td_detector_runner *f, const void *images, int n,
                                 const td_nms_opts *nms)
{
    if (n < f->batch) {
        memcpy(f->images, images, (size_t)n * f->image_bytes);
        images = f->images;
    }
    TD_TRY(td_program_bind(f->program, "images", images));
    TD_TRY(td_program_run(f->program));
    for (int i = 0; i < n; i++)
        f->rows[i] =
            (td_nms_pool_row){ .opts = nms, .found = f->found + (size_t)i * TD_NMS_TOTAL_MAX };
    const float *deltas = td_program_output(f->program, "codes", NULL);
    const float *scores = td_program_output(f->program, "scores", NULL);
    const int64_t t0 = td_now_ns();
    const td_status st = td_nms_pool_run(f->nms_pool, deltas, scores, n, f->rows);
    f->boxes_s = (double)(td_now_ns() - t0) * 1e-9;
    return st;
}

double td_detector_runner_boxes_s(const td_detector_runner *f)
{
    return f->boxes_s;
}

const td_detection *td_detector_runner_found(const td_detector_runner *f, int i, int *n)
{
    *n = f->rows[i].n_found;
    return f->rows[i].found;
}
