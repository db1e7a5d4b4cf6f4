/*
 * classify.c -- tandem classify: classifies images
 *
 * A loader's workers decode while a loaded network computes.  n images are divided into batches of
 * nearly equal size (9 with at most 8 in a batch: 5 and 4), so that one program suffices with
 * little padding.  The loader leaves bad images out of a batch; the sample numbers in a batch
 * identify the others.
 */
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "inference/detect_data.h"
#include "inference/inputs.h"
#include "inference/network.h"
#include "model/own_graph.h"
#include "options/field.h"
#include "tandem/dataset.h"
#include "tandem/inference.h"
#include "tandem/loader.h"

enum { BATCH = 8 };

typedef struct {
    const td_classify_opts *o;
    td_network *net;
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
    td_network_close(c->net);
    td_free(c->probabilities);
}

static int choose_batch(int64_t n, int most)
{
    most = most > 0 ? most : BATCH;
    int64_t n_batches = (n + most - 1) / most;
    return (int)((n + n_batches - 1) / n_batches);
}

static td_status open_network(classifier *c, int batch)
{
    const td_classify_opts *o = c->o;
    td_network_opts no = { .model = o->model,
                           .amp = o->amp,
                           .weights = o->weights,
                           .classes = o->classes,
                           .use_ema = o->use_ema,
                           .interpolation = o->interpolation,
                           .stored_orientation = o->stored_orientation,
                           .topk = o->topk,
                           .threshold = o->threshold,
                           .batch_sizes = { batch },
                           .planned_runs = (td_dataset_count(c->ds) + batch - 1) / batch,
                           .device = o->device };
    td_model_onnx_weights(&no.model, &no.weights);
    if (!no.weights)
        return td_error(TD_EUSAGE, "classify requires --weights FILE");
    TD_TRY(td_network_open_classifier(&no, &c->net));
    const bool is_multi_label = td_predictor_is_multi_label(td_network_predictor(c->net));
    const td_field *threshold = td_field_find(td_classify_fields(), "threshold");
    return td_network_check_threshold(o->threshold > 0 && !td_field_is_default(threshold, o),
                                      is_multi_label, no.weights);
}

static td_status open_loader(classifier *c, int batch)
{
    const int64_t n = td_dataset_count(c->ds);
    const int padding = td_network_transform(c->net)->padding;
    td_loader_opts lo = { .batch_size = batch,
                          .image_size = td_network_about(c->net)->image_size,
                          .channels = td_network_about(c->net)->channels,
                          .eval_padding = padding > 0 ? padding : -1,
                          .interpolation = c->o->interpolation,
                          .norm = td_network_transform(c->net)->norm,
                          .stored_orientation = c->o->stored_orientation,
                          .workers = n == 1 ? 1 : c->o->workers,
                          .prefetch = n <= batch ? 1 : 2,
                          .nice = 5,
                          .max_bad = 1,
                          .as_bytes = td_network_dtype(c->net) == TD_DT_U8 };
    return td_loader_new(c->ds, &lo, &c->ld);
}

/* --- results ---------------------------------------------------------------------------------- */

static td_status report_good(classifier *c, const float *probabilities)
{
    char room[TD_NETWORK_TOPK][24];
    td_prediction p = { .path = td_dataset_path(c->ds, c->next++) };
    td_network_classes(td_network_predictor(c->net), probabilities, c->o->topk, c->o->threshold, &p,
                       room);
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

static td_status keep_probabilities(void *ctx, int from, int n, const float *const results[2])
{
    classifier *c = ctx;
    const size_t n_classes = (size_t)td_network_about(c->net)->n_classes;
    memcpy(c->probabilities + (size_t)from * n_classes, results[1],
           (size_t)n * n_classes * sizeof(float));
    return TD_OK;
}

static td_status classify_batch(classifier *c, const td_batch *b)
{
    const size_t n_classes = (size_t)td_network_about(c->net)->n_classes;
    if (b->n)
        TD_TRY(td_network_rows(c->net, td_batch_images(b), td_network_dtype(c->net), b->n,
                               keep_probabilities, c));
    for (int i = 0; i < b->n; i++) {
        TD_TRY(report_bad(c, b->samples[i]));
        TD_TRY(report_good(c, c->probabilities + (size_t)i * n_classes));
    }
    return TD_OK;
}

td_status td_classify(const td_classify_opts *opts, int n_files, const char *const *files,
                      td_status (*each)(void *ctx, const td_prediction *p), void *ctx)
{
    td_status st = TD_OK;
    classifier c = { .o = opts, .each = each, .ctx = ctx };
    const td_batch *b;
    TD_OUT(
        td_log_configure(opts->log ? opts->log : "error,classes=info,weights=warn,quantize=warn"));
    TD_OUT(td_dataset_from_files(files, n_files, &c.ds));
    const int batch = choose_batch(td_dataset_count(c.ds), opts->batch_size);
    TD_OUT(open_network(&c, batch));
    TD_OUT(open_loader(&c, batch));
    TD_OUT(TD_ALLOC(c.probabilities, (size_t)batch * (size_t)td_network_about(c.net)->n_classes));
    while ((st = td_loader_next(c.ld, &b)) == TD_OK)
        TD_OUT(classify_batch(&c, b));
    if (st == TD_EEND)
        st = report_bad(&c, td_dataset_count(c.ds));
out:
    release(&c);
    return st;
}
