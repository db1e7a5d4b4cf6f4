/*
 * detect.c -- tandem detect: detects objects in images
 *
 * A loader's workers decode while a detector runner computes.  n images are divided into batches of
 * nearly equal size (9 with at most 8 in a batch: 5 and 4).  The loader leaves bad images out of a
 * batch; the sample numbers in a batch identify the others.  An image is read again for its size,
 * and decoded again to draw on it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/paths.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/quantization.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "inference/annotated_images.h"
#include "inference/box_classes.h"
#include "inference/detector.h"
#include "inference/inputs.h"
#include "optim/training_graph.h"
#include "tandem/dataset.h"
#include "tandem/inference.h"
#include "tandem/loader.h"

enum { BATCH = 8, FILE_BYTES = 256 << 20 };

typedef struct {
    td_detect_opts o; /* a copy, in which the file's metadata complete `model` */
    td_tensors *weights;
    td_quantization quantization; /* of the weights */
    td_device *dev;
    td_detector_runner *runner;
    td_nms_opts nms;
    td_box_classes classes;
    td_dataset *ds;
    td_loader *ld;
    int64_t next;  /* the image to report */
    int64_t n_bad; /* bad images reported */
    td_found_box boxes[TD_NMS_TOTAL_MAX];
    bool *is_wanted;                /* [K + 1] by label; NULL: all classes are */
    char (*room)[24];               /* [TD_NMS_TOTAL_MAX] names of classes without one */
    td_annotated_images *annotated; /* with --draw */
    td_status (*each)(void *ctx, const td_found *f);
    void *ctx;
} detector;

static void release(detector *d)
{
    td_loader_free(d->ld);
    td_dataset_free(d->ds);
    td_detector_runner_free(d->runner);
    td_device_close(d->dev);
    td_box_classes_release(&d->classes);
    td_free(d->is_wanted);
    td_free(d->room);
    td_annotated_images_free(d->annotated);
    td_tensors_free(d->weights);
    td_quantization_release(&d->quantization);
    td_free(d);
}

/* --- open ------------------------------------------------------------------------------------- */

static td_status open_weights(detector *d)
{
    td_model_opts *m = &d->o.model;
    const char *path = d->o.weights;
    if (!path)
        return td_error(TD_EUSAGE, "detect requires --weights FILE");
    TD_TRY(td_weight_file_open_as(path, d->o.use_ema, &d->weights));
    td_weight_metadata_apply(d->weights, td_model_is_default(m), m);
    TD_TRY(td_weight_metadata_check(d->weights, path, m));
    TD_TRY(td_quantization_apply(d->weights, path, &d->o.amp, &d->quantization));
    if (!td_model_detector(m) && td_model_is_default(m) &&
        !td_tensors_meta(d->weights, "tandem.arch"))
        return td_error(
            TD_EUSAGE, "'%s' does not name the network of its weights: give --arch, such as ssd320",
            path);
    if (!td_model_detector(m))
        return td_error(TD_EUSAGE, "'%s' contains weights of %s, which is not a detector", path,
                        m->model || m->model_text ? "a custom graph" : m->arch);
    if (!m->num_classes)
        m->num_classes = td_model_default_classes(m, 0);
    TD_TRY(td_box_classes_read(d->weights, path, m->num_classes, d->o.classes, &d->classes));
    if (d->o.only)
        TD_TRY_MSG(td_box_classes_choose(&d->classes, d->o.only, &d->is_wanted), "--only");
    TD_TRY(td_model_resolve_images(m));
    return td_model_check_resize(m);
}

static td_status open_device(detector *d)
{
    td_detect_opts *o = &d->o;
    TD_TRY(td_device_open(o->device.name, &d->dev));
    td_device_winograd(d->dev, o->device.winograd);
    TD_TRY(td_amp_resolve(&o->amp, d->dev));
    return td_device_tune(d->dev, o->device.tune, o->device.tune_cache);
}

static td_status open_detector_runner(detector *d, int batch)
{
    td_detect_opts *o = &d->o;
    const td_detector_runner_opts ro = { .batch = batch,
                                         .norm = td_loader_pixel_norm(d->ld),
                                         .amp = &o->amp,
                                         .planned_runs = td_loader_batches(d->ld) };
    TD_TRY(td_detector_runner_new(&o->model, d->dev, &ro, &d->runner));
    TD_TRY(td_weights_load(d->weights, o->weights,
                           &(td_load_opts){ .use_ema = o->use_ema, .model = &o->model },
                           td_detector_runner_program(d->runner)));
    TD_TRY(td_program_release_params(td_detector_runner_program(d->runner)));
    d->nms = td_boxes_nms_display(&o->boxes, td_detector_runner_anchors(d->runner)->kind);
    return o->draw ? td_make_folder(o->draw) : TD_OK;
}

static int choose_batch(int64_t n, int most)
{
    most = most > 0 ? most : BATCH;
    int64_t n_batches = (n + most - 1) / most;
    return (int)((n + n_batches - 1) / n_batches);
}

static td_status open_data(detector *d, int batch)
{
    const int64_t n = td_dataset_count(d->ds);
    td_loader_opts lo = { .batch_size = batch,
                          .image_size = d->o.model.image_size,
                          .detector = td_model_detector(&d->o.model),
                          .stored_orientation = d->o.stored_orientation,
                          .workers = n == 1 ? 1 : d->o.workers,
                          .prefetch = n <= batch ? 1 : 2,
                          .nice = 5,
                          .max_bad = 1 };
    TD_TRY(td_input_as_bytes(d->dev, &lo.as_bytes));
    return td_loader_new(d->ds, &lo, &d->ld);
}

/* --- drawing ---------------------------------------------------------------------------------- */

/* Write the annotated image to the folder; *out is its path, borrowed. */
static td_status draw(detector *d, const td_found *f, const void *bytes, size_t n_bytes,
                      int64_t sample, const char **out)
{
    td_status st = TD_OK;
    td_overlay_box *overlay = td_alloc((size_t)f->n + 1, sizeof *overlay);
    char(*labels)[80] = td_alloc((size_t)f->n + 1, sizeof *labels);
    if (!overlay || !labels)
        TD_OUT(TD_ENOMEM);
    for (int i = 0; i < f->n; i++) { /* the best are drawn last */
        const td_found_box *b = &f->boxes[f->n - 1 - i];
        snprintf(labels[i], sizeof *labels, "%.60s %.2f", b->name, b->score);
        overlay[i] = (td_overlay_box){ .box = { b->x, b->y, b->width, b->height },
                                       .label = labels[i],
                                       .colour = b->label };
    }
    st = td_annotated_images_save(d->annotated, sample, bytes, n_bytes, d->o.stored_orientation,
                                  overlay, (size_t)f->n, out);
out:
    td_free(overlay);
    td_free(labels);
    return st;
}

/* --- results ---------------------------------------------------------------------------------- */

static void fill(detector *d, const td_detection *found, int n_found, td_found *f)
{
    int n = 0;
    for (int i = 0; i < n_found; i++)
        if (!d->is_wanted || d->is_wanted[found[i].label])
            d->boxes[n++] =
                td_box_classes_found(&d->classes, &found[i], f->width, f->height, d->room[i]);
    f->n = n;
    f->boxes = d->boxes;
}

static td_status find_size(const detector *d, const void *bytes, size_t n, td_found *f)
{
    td_image_info info;
    TD_TRY(td_image_probe(bytes, n, &info));
    td_image_size(&info, d->o.stored_orientation, &f->width, &f->height);
    return TD_OK;
}

static td_status report_good(detector *d, int row)
{
    int n;
    char *bytes = NULL;
    size_t n_bytes;
    const int64_t sample = d->next++;
    td_found f = { .path = td_dataset_path(d->ds, sample) };
    td_box_classes_describe(&d->classes, &f);
    const td_detection *found = td_detector_runner_found(d->runner, row, &n);
    td_status st = td_file_read(f.path, FILE_BYTES, &bytes, &n_bytes);
    if (st == TD_OK)
        st = find_size(d, bytes, n_bytes, &f);
    if (st == TD_OK) {
        fill(d, found, n, &f);
        if (d->o.draw)
            TD_OUT(draw(d, &f, bytes, n_bytes, sample, &f.drawn));
    } else { /* the image was readable before */
        f.st = st;
        f.message = td_error_message();
    }
    st = d->each(d->ctx, &f);
out:
    td_free(bytes);
    return st;
}

/* Report the bad images before image `until`. */
static td_status report_bad(detector *d, int64_t until)
{
    const td_bad_image *bad;
    int64_t n = td_loader_bad(d->ld, &bad);
    for (; d->next < until; d->next++) {
        const td_bad_image unknown = { .reason = "cannot be read", .st = TD_EFORMAT };
        const td_bad_image *why = d->n_bad < n ? &bad[d->n_bad] : &unknown;
        d->n_bad++;
        td_found f = { .path = td_dataset_path(d->ds, d->next),
                       .st = why->st,
                       .message = why->reason };
        TD_TRY(d->each(d->ctx, &f));
    }
    return TD_OK;
}

static td_status detect_batch(detector *d, const td_batch *b)
{
    if (b->n)
        TD_TRY(td_detector_runner_run(d->runner, td_batch_images(b), b->n, &d->nms));
    for (int i = 0; i < b->n; i++) {
        TD_TRY(report_bad(d, b->samples[i]));
        TD_TRY(report_good(d, i));
    }
    return TD_OK;
}

td_status td_detect(const td_detect_opts *opts, int n_files, const char *const *files,
                    td_status (*each)(void *ctx, const td_found *f), void *ctx)
{
    td_status st = TD_OK;
    const td_batch *b;
    detector *d = TD_NEW(detector);
    if (!d)
        return TD_ENOMEM;
    d->o = *opts;
    d->each = each;
    d->ctx = ctx;
    d->room = td_alloc(TD_NMS_TOTAL_MAX, sizeof *d->room);
    if (!d->room)
        TD_OUT(TD_ENOMEM);
    TD_OUT(
        td_log_configure(opts->log ? opts->log : "error,classes=info,weights=warn,quantize=warn"));
    td_set_threads(opts->device.threads);
    TD_OUT(open_weights(d));
    TD_OUT(td_dataset_from_files(files, n_files, &d->ds));
    if (opts->draw)
        TD_OUT(td_annotated_images_new(d->ds, opts->draw, false, td_dataset_count(d->ds),
                                       &d->annotated));
    const int batch = choose_batch(td_dataset_count(d->ds), opts->batch_size);
    TD_OUT(open_device(d)); /* it decides what the loader gives */
    TD_OUT(open_data(d, batch));
    TD_OUT(open_detector_runner(d, batch));
    while ((st = td_loader_next(d->ld, &b)) == TD_OK)
        TD_OUT(detect_batch(d, b));
    if (st == TD_EEND)
        st = report_bad(d, td_dataset_count(d->ds));
out:
    release(d);
    return st;
}
