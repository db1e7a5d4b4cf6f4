/*
 * network.c -- a network that stays loaded: opened and closed, and its compute thread
 *
 * The predictor belongs to the compute thread, which opens, runs and frees it.
 */
#include "inference/network.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/stats.h"
#include "inference/network_parts.h"
#include "model/own_graph.h"
#include "options/field.h"

void td_network_defaults(td_network_opts *opts)
{
    *opts = (td_network_opts){ .topk = 5, .planned_runs = INT64_MAX };
    td_classify_opts c;
    td_classify_defaults(&c); /* the device, the precision, the interpolation */
    opts->model = c.model;
    opts->amp = c.amp;
    opts->interpolation = c.interpolation;
    opts->device = c.device;
    td_fields_default(td_boxes_fields(), &opts->boxes);
}

/* --- open ------------------------------------------------------------------------------------- */

static td_status check(const td_network_opts *o)
{
    if (o->topk < 1 || o->topk > TD_NETWORK_TOPK)
        return td_error(TD_EARG, "topk is %d, wanted 1 .. %d", o->topk, TD_NETWORK_TOPK);
    for (int i = 0; i < TD_NETWORK_BATCHES; i++)
        if (o->batch_sizes[i] < 0 || o->batch_sizes[i] > TD_NETWORK_BATCH_MAX)
            return td_error(TD_EARG, "batch size %d, wanted 0 .. %d", o->batch_sizes[i],
                            TD_NETWORK_BATCH_MAX);
    if (o->workers < 0 || o->workers > TD_NETWORK_WORKERS_MAX)
        return td_error(TD_EARG, "%d workers, wanted 0 .. %d", o->workers, TD_NETWORK_WORKERS_MAX);
    if (!(o->threshold >= 0 && o->threshold <= 1))
        return td_error(TD_EARG, "threshold is %g, wanted 0 .. 1", o->threshold);
    if (o->device.threads < 0 || o->device.threads > TD_NETWORK_THREADS_MAX)
        return td_error(TD_EARG, "%d threads, wanted 0 .. %d", o->device.threads,
                        TD_NETWORK_THREADS_MAX);
    if (o->max_pixels < 0)
        return td_error(TD_EARG, "max_pixels is %lld, wanted 0 or more", (long long)o->max_pixels);
    return TD_OK;
}

static td_status open_predictor(td_network *net, const td_network_opts *o, bool for_classes)
{
    td_predictor_opts po = { .model = o->model,
                             .amp = o->amp,
                             .weights = o->weights,
                             .classes = o->classes,
                             .use_ema = o->use_ema,
                             .interpolation = o->interpolation,
                             .stored_orientation = o->stored_orientation,
                             .device = o->device,
                             .takes_detectors = !for_classes,
                             .takes_floats = !for_classes };
    td_model_onnx_weights(&po.model, &po.weights);
    if (!po.weights)
        return td_error(TD_EUSAGE, "td_network_opts.weights names no weight file");
    td_set_threads(o->device.threads);
    return td_predictor_open(&po, &net->predictor);
}

/* the largest first: later programs share its memory */
static td_status compile(td_network *net, const td_network_opts *o)
{
    int n = 0;
    net->batch = 1;
    for (int below = INT_MAX;;) {
        int largest = 0;
        for (int i = 0; i < TD_NETWORK_BATCHES; i++)
            if (o->batch_sizes[i] < below && o->batch_sizes[i] > largest)
                largest = o->batch_sizes[i];
        if (!largest && n)
            break;
        below = largest ? largest : 1;
        net->batch = n++ ? net->batch : below;
        TD_TRY(td_predictor_add_batch(net->predictor, below, o->planned_runs));
    }
    TD_TRY(td_predictor_finish(net->predictor));
    return n > 1 ? td_predictor_time(net->predictor, 0) : TD_OK;
}

static td_status prepare_boxes(td_network *net, const td_network_opts *o)
{
    const td_detector kind = td_predictor_detector(net->predictor);
    if (kind == TD_DETECTOR_NONE)
        return TD_OK;
    const int columns = td_predictor_classes(net->predictor) + 1;
    const int n_threads = td_threads() < net->batch ? td_threads() : net->batch;
    TD_TRY(td_anchors_new(kind, net->transform.size, &net->anchors));
    net->nms = td_boxes_nms_display(&o->boxes, kind);
    return td_nms_pool_new(net->anchors, columns, n_threads, &net->nms_pool);
}

static void describe(td_network *net)
{
    const td_predictor *p = net->predictor;
    net->about = (td_network_info){ .name = td_predictor_name(p),
                                    .precision = td_amp_precision_name(td_predictor_amp(p)),
                                    .is_detector = net->anchors != NULL,
                                    .n_classes = td_predictor_classes(p),
                                    .n_anchors = net->anchors ? net->anchors->n : 0,
                                    .image_size = net->transform.size,
                                    .channels = td_transform_channels(&net->transform) };
}

typedef struct {
    td_network *net;
    const td_network_opts *o;
    bool for_classes; /* by td_network_rows only */
} open_job;

static td_status open_all(void *ctx)
{
    const open_job *job = ctx;
    td_network *net = job->net;
    TD_TRY(open_predictor(net, job->o, job->for_classes));
    net->transform = *td_predictor_transform(net->predictor);
    net->transform.max_pixels = job->o->max_pixels;
    TD_TRY(compile(net, job->o));
    TD_TRY(prepare_boxes(net, job->o));
    describe(net);
    return TD_OK;
}

static td_status open_network(const td_network_opts *opts, bool for_classes, td_network **out)
{
    *out = NULL;
    TD_TRY(check(opts));
    td_network *net = TD_NEW(td_network);
    if (!net)
        return TD_ENOMEM;
    pthread_mutex_init(&net->lock, NULL);
    net->topk = opts->topk;
    net->threshold = opts->threshold;
    td_status st = td_threads_wanted(opts->workers, &net->n_workers);
    if (st == TD_OK)
        st = td_compute_thread_new(&net->compute);
    if (st == TD_OK)
        st = td_compute_thread_run(net->compute, open_all, &(open_job){ net, opts, for_classes });
    if (st == TD_OK)
        *out = net;
    else
        td_network_close(net);
    return st;
}

td_status td_network_open(const td_network_opts *opts, td_network **out)
{
    return open_network(opts, false, out);
}

td_status td_network_open_classifier(const td_network_opts *opts, td_network **out)
{
    return open_network(opts, true, out);
}

static td_status free_predictor(void *ctx)
{
    td_network *net = ctx;
    td_predictor_free(net->predictor);
    return TD_OK;
}

void td_network_close(td_network *net)
{
    if (!net)
        return;
    if (net->compute)
        TD_CHECK(td_compute_thread_run(net->compute, free_predictor, net) == TD_OK);
    td_compute_thread_free(net->compute);
    td_nms_pool_free(net->nms_pool);
    td_anchors_free(net->anchors);
    td_network_free_spare(net);
    pthread_mutex_destroy(&net->lock);
    td_free(net);
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct {
    td_network *net;
    const void *rows;
    td_dtype dtype;
    int n;
    td_predictor_take *take;
    void *ctx;
} run_job;

static td_status run_rows(void *ctx)
{
    const run_job *j = ctx;
    return td_predictor_each(j->net->predictor, 0, j->rows, j->dtype, j->n, j->take, j->ctx);
}

td_status td_network_rows(td_network *net, const void *rows, td_dtype dtype, int n,
                          td_predictor_take *take, void *ctx)
{
    run_job job = { net, rows, dtype, n, take, ctx };
    return td_compute_thread_run(net->compute, run_rows, &job);
}

/* where results go */
typedef struct {
    float *to[2]; /* NULL: not needed */
    size_t each[2];
} copies;

static td_status copy(void *ctx, int from, int n, const float *const results[2])
{
    const copies *c = ctx;
    for (int i = 0; i < 2; i++)
        if (c->to[i])
            memcpy(c->to[i] + (size_t)from * c->each[i], results[i],
                   (size_t)n * c->each[i] * sizeof(float));
    return TD_OK;
}

td_status td_network_run(td_network *net, int n, const float *images, float *first, float *second)
{
    const size_t k = (size_t)net->about.n_classes, a = (size_t)net->about.n_anchors;
    copies c = { .to = { first, second }, .each = { a ? 4 * a : k, a ? a * (k + 1) : k } };
    if (n < 1)
        return td_error(TD_EARG, "%d images, wanted 1 or more", n);
    return td_network_rows(net, images, TD_DT_F32, n, copy, &c);
}

/* --- metadata --------------------------------------------------------------------------------- */

const td_network_info *td_network_about(const td_network *net)
{
    return &net->about;
}

const td_transform *td_network_transform(const td_network *net)
{
    return &net->transform;
}

td_dtype td_network_dtype(const td_network *net)
{
    return td_predictor_dtype(net->predictor);
}

const td_predictor *td_network_predictor(const td_network *net)
{
    return net->predictor;
}

void td_network_classes(const td_predictor *from, const float *probabilities, int k,
                        double threshold, td_prediction *p, char room[TD_NETWORK_TOPK][24])
{
    int best[TD_NETWORK_TOPK];
    const int n_classes = td_predictor_classes(from);
    for (int i = 0; i < n_classes && p->st == TD_OK; i++)
        if (!isfinite(probabilities[i]))
            p->st = td_error(TD_EARG, "the network gives no finite probabilities for it (%s)",
                             td_amp_precision_name(td_predictor_amp(from)));
    if (p->st != TD_OK) {
        p->message = td_error_message();
        return;
    }
    p->n = k < n_classes ? k : n_classes;
    td_top_k(probabilities, n_classes, p->n, best);
    if (!(threshold > 0))
        threshold = 0.5;
    while (td_predictor_is_multi_label(from) && p->n > 0 &&
           (double)probabilities[best[p->n - 1]] < threshold)
        p->n--;
    for (int i = 0; i < p->n; i++) {
        p->label[i] = best[i];
        p->probability[i] = (double)probabilities[best[i]];
        p->name[i] = td_predictor_class_name(from, best[i], room[i]);
    }
}
