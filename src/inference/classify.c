/*
 * classify.c -- tandem classify: classifies images
 *
 * A loader's workers decode while a predictor computes.  n images are divided into batches of
 * nearly equal size (9 with at most 8 in a batch: 5 and 4), so that one program suffices with
 * little padding.  The loader leaves bad images out of a batch; the sample numbers in a batch
 * identify the others.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/stats.h"
#include "inference/inputs.h"
#include "inference/predictor.h"
#include "model/own_graph.h"
#include "tandem/dataset.h"
#include "tandem/inference.h"
#include "tandem/loader.h"
#include "tandem/program.h"

enum { BATCH = 8 };

typedef struct {
    const td_classify_opts *o;
    td_predictor *predictor;
    td_dataset *ds;
    td_loader *ld;
    float *probabilities; /* [batch, classes] */
    int64_t next;         /* the image to report */
    int64_t n_bad;        /* bad images reported */
    td_status (*each)(void *ctx, const td_prediction *p);
    void *ctx;
} classifier;

static void release(classifier *c)
{
    td_loader_free(c->ld);
    td_dataset_free(c->ds);
    td_predictor_free(c->predictor);
    td_free(c->probabilities);
}

static int choose_batch(int64_t n, int most)
{
    most = most > 0 ? most : BATCH;
    int64_t n_batches = (n + most - 1) / most;
    return (int)((n + n_batches - 1) / n_batches);
}

static td_status open_data(classifier *c, int n_files, const char *const *files, int *batch)
{
    TD_TRY(td_dataset_from_files(files, n_files, &c->ds));
    int64_t n = td_dataset_count(c->ds);
    *batch = choose_batch(n, c->o->batch_size);
    td_loader_opts lo = { .batch_size = *batch,
                          .image_size = td_predictor_transform(c->predictor)->size,
                          .interpolation = c->o->interpolation,
                          .stored_orientation = c->o->stored_orientation,
                          .workers = n == 1 ? 1 : c->o->workers,
                          .prefetch = n <= *batch ? 1 : 2,
                          .nice = 5,
                          .max_bad = 1,
                          .as_bytes = td_predictor_dtype(c->predictor) == TD_DT_U8 };
    return td_loader_new(c->ds, &lo, &c->ld);
}

static td_status open_predictor(classifier *c)
{
    const td_classify_opts *o = c->o;
    td_predictor_opts po = { .model = o->model,
                             .amp = o->amp,
                             .weights = o->weights,
                             .classes = o->classes,
                             .use_ema = o->use_ema,
                             .interpolation = o->interpolation,
                             .stored_orientation = o->stored_orientation,
                             .device = o->device };
    td_model_onnx_weights(&po.model, &po.weights);
    if (!po.weights)
        return td_error(TD_EUSAGE, "classify requires --weights FILE");
    return td_predictor_open(&po, &c->predictor);
}

/* --- results ---------------------------------------------------------------------------------- */

static td_status report_good(classifier *c, const float *probability)
{
    char room[10][24];
    int best[10], classes = td_predictor_classes(c->predictor);
    td_prediction p = { .path = td_dataset_path(c->ds, c->next++) };
    p.n = c->o->topk < classes ? c->o->topk : classes;
    for (int i = 0; i < classes && p.st == TD_OK; i++)
        if (!isfinite(probability[i]))
            p.st = td_error(TD_EARG, "the network gives no finite probabilities for it (%s)",
                            td_amp_precision_name(td_predictor_amp(c->predictor)));
    if (p.st != TD_OK) {
        p.n = 0;
        p.message = td_error_message();
        return c->each(c->ctx, &p);
    }
    td_top_k(probability, classes, p.n, best);
    for (int i = 0; i < p.n; i++) {
        p.label[i] = best[i];
        p.probability[i] = (double)probability[best[i]];
        p.name[i] = td_predictor_class_name(c->predictor, best[i], room[i]);
    }
    return c->each(c->ctx, &p);
}

/* Report the bad images before image `until`. */
static td_status report_bad(classifier *c, int64_t until)
{
    const td_bad_image *bad;
    int64_t n = td_loader_bad(c->ld, &bad);
    for (; c->next < until; c->next++) {
        const td_bad_image unknown = { .reason = "cannot be read", .st = TD_EFORMAT };
        const td_bad_image *why = c->n_bad < n ? &bad[c->n_bad] : &unknown;
        c->n_bad++;
        td_prediction p = { .path = td_dataset_path(c->ds, c->next),
                            .st = why->st,
                            .message = why->reason };
        TD_TRY(c->each(c->ctx, &p));
    }
    return TD_OK;
}

static td_status classify_batch(classifier *c, const td_batch *b)
{
    size_t classes = (size_t)td_predictor_classes(c->predictor);
    if (b->n)
        TD_TRY(td_predictor_run(c->predictor, td_batch_images(b), td_predictor_dtype(c->predictor),
                                b->n, NULL, c->probabilities));
    for (int i = 0; i < b->n; i++) {
        TD_TRY(report_bad(c, b->samples[i]));
        TD_TRY(report_good(c, c->probabilities + (size_t)i * classes));
    }
    return TD_OK;
}

td_status td_classify(const td_classify_opts *opts, int n_files, const char *const *files,
                      td_status (*each)(void *ctx, const td_prediction *p), void *ctx)
{
    td_status st = TD_OK;
    classifier c = { .o = opts, .each = each, .ctx = ctx };
    const td_batch *b;
    int batch;
    TD_OUT(
        td_log_configure(opts->log ? opts->log : "error,classes=info,weights=warn,quantize=warn"));
    td_set_threads(opts->device.threads);
    TD_OUT(open_predictor(&c));
    TD_OUT(open_data(&c, n_files, files, &batch));
    TD_OUT(td_predictor_add_batch(c.predictor, batch, td_loader_batches(c.ld)));
    TD_OUT(td_predictor_finish(c.predictor));
    c.probabilities =
        td_alloc((size_t)batch, (size_t)td_predictor_classes(c.predictor) * sizeof(float));
    if (!c.probabilities)
        TD_OUT(TD_ENOMEM);
    while ((st = td_loader_next(c.ld, &b)) == TD_OK)
        TD_OUT(classify_batch(&c, b));
    if (st == TD_EEND)
        st = report_bad(&c, td_dataset_count(c.ds));
out:
    release(&c);
    return st;
}
