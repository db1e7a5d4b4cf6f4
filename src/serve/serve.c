/*
 * serve.c -- tandem serve: opens the model, serves until a signal arrives, drains
 *
 * The thread that calls td_serve computes batches, as do those of other streams, which share the
 * compute threads of --threads; it checks for signals between batches.
 *
 *     HTTP thread -- complete requests --> workers -- rows --> streams -- answers --> HTTP thread
 */
#include "tandem/serve.h"
#include "model/own_graph.h"
#include "tandem/loader.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/paths.h"
#include "base/signals.h"
#include "inference/detect_data.h"
#include "options/field.h"
#include "options/rows.h"
#include "serve/http.h"
#include "serve/listener.h"
#include "serve/streams.h"
#include "serve/token.h"

#define TICK_NS INT64_C(100000000) /* between two checks for signals */

enum {
    NAME_BYTES = 101,
    TD_STREAMS_MAX = 256,
    SMALLEST_BATCH = 1, /* besides max_batch */
    MAX_SCANS = 32,     /* limit for a JPEG; real encoders write about 10 */
    PEM_BYTES_MAX = 1 << 20
};

/* clang-format off */
static const td_field serve_fields[] = {
    TD_GIVEN  (td_serve_opts, given),
    TD_WEIGHTS_ROW(td_serve_opts),
    TD_BOOL_AS(td_serve_opts, use_ema, "use-ema", "ema", false,
               "use the averaged (EMA) weights of the file"),
    TD_INT    (td_serve_opts, port, 8000, 0, 65535,
               "port to listen on; 0 picks a free port and prints it"),
    TD_TEXT   (td_serve_opts, host, "127.0.0.1", "ADDRESS",
               "address to listen on; 0.0.0.0 or :: for all interfaces"),
    TD_TEXT   (td_serve_opts, name, NULL, "NAME",
               "model name in URLs; default: the name of the network"),
    TD_IMAGE_ROWS(td_serve_opts),
    TD_INT_AS (td_serve_opts, topk, "topk", "top", 5, 1, TD_TOPK_MAX, NULL,
               "classifiers: number of classes in a response if the request does not specify it"),
    TD_REAL   (td_serve_opts, threshold, 0.5, 0, 1,
               "multi-label: probability from which a class is in a response if the request does "
               "not specify it"),
    TD_CLASSES_ROW(td_serve_opts, "those in the weights"),
    TD_TEXT   (td_serve_opts, only, NULL, "LIST",
               "detectors: report only these classes, by name or category id: 'cat,dog'"),
    TD_INT    (td_serve_opts, max_batch, 8, 1, 256, "maximum batch size"),
    TD_REAL   (td_serve_opts, max_delay_ms, 2, 0, 10000,
               "maximum time in ms that a decoded image waits for more images to join its batch"),
    TD_INT    (td_serve_opts, max_queue, 128, 1, 100000,
               "maximum number of requests in progress; further ones get status 503"),
    TD_LONG   (td_serve_opts, max_body, 20e6, 1, 1e10,
               "maximum size of a request body in bytes, for example '20M'; larger ones get "
               "status 413"),
    TD_LONG   (td_serve_opts, max_pixels, 25e6, 1, 178956970,
               "maximum number of pixels in an image, for example '25M'; larger ones get status "
               "413"),
    TD_REAL   (td_serve_opts, timeout, 30, 0.1, 3600, "seconds a client has to send its request"),
    TD_REAL   (td_serve_opts, drain_timeout, 5, 0, 3600,
               "seconds after SIGTERM a client has to finish sending its request"),
    TD_INT    (td_serve_opts, max_connections, 1000, 1, 60000,
               "maximum number of open connections; at the limit the longest idle one is closed"),
    TD_TEXT   (td_serve_opts, token_file, NULL, "FILE",
               "file with a token that every request must send: 'Authorization: Bearer TOKEN'"),
    TD_TEXT   (td_serve_opts, tls_cert, NULL, "FILE", "serve HTTPS with this certificate (PEM)"),
    TD_TEXT   (td_serve_opts, tls_key, NULL, "FILE", "private key of --tls-cert (PEM)"),
    TD_INT    (td_serve_opts, streams, 0, 0, TD_STREAMS_MAX,
               "number of batches computed at the same time, each by an equal share of --threads; "
               "0: one for each 8 threads"),
    TD_INT_AS (td_serve_opts, workers, "workers", "j", 0, 0, 1024, NULL,
               "number of decoding threads; 0: automatic"),
    TD_DEVICE_ROWS(td_serve_opts),
    TD_TEXT   (td_serve_opts, log, NULL, "SPEC",
               "log level, also by module: 'info', 'warn,serve=debug'"),
    TD_END,
};
/* clang-format on */

const td_field *td_serve_fields(void)
{
    return serve_fields;
}

void td_serve_defaults(td_serve_opts *opts)
{
    *opts = (td_serve_opts){ 0 };
    td_model_defaults(&opts->model);
    td_amp_defaults(&opts->amp);
    td_fields_default(td_boxes_fields(), &opts->boxes);
    td_fields_default(serve_fields, opts);
}

typedef struct {
    const td_serve_opts *o;
    td_predictor *predictor;
    td_service service;
    td_anchors *anchors; /* detectors only, like the next two */
    td_nms_pool **nms;   /* [streams] */
    bool *is_wanted;
    td_metrics metrics;
    td_batcher *batcher;
    td_streams *streams;
    td_http *http;
    char *token, *tls_cert, *tls_key;
    char file_name[NAME_BYTES]; /* a name made from that of the weight file */
} server;

static const char *class_name(const void *ctx, int i, char room[24])
{
    return td_predictor_class_name(ctx, i, room);
}

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

static bool is_name(const char *name)
{
    return *name && !name[strspn(name, NAME_CHARS)] && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static td_status check_name(const char *name)
{
    if (is_name(name))
        return TD_OK;
    return td_error(
        TD_EUSAGE, "'%.100s' is not a valid model name, wanted letters, digits, - _ . (see --name)",
        name);
}

/* the ONNX file that is the network has its weights, too */
static const char *weights_of(const td_serve_opts *o)
{
    return o->weights ? o->weights : o->model.model;
}

/* the architecture; for a network of the user's own the weight file without its ending */
static const char *choose_name(server *s)
{
    const char *name = s->o->name ? s->o->name : td_path_base(td_predictor_name(s->predictor));
    if (s->o->name || is_name(name))
        return name;
    name = td_path_base(weights_of(s->o));
    snprintf(s->file_name, sizeof s->file_name, "%.*s", (int)strcspn(name, "."), name);
    for (char *c = s->file_name; *(c += strspn(c, NAME_CHARS)); c++)
        *c = '_';
    return *s->file_name ? s->file_name : "model";
}

static bool is_given(const td_serve_opts *o, const char *name)
{
    const td_field *fields = td_serve_fields();
    return td_field_is_given(fields, td_field_find(fields, name), o);
}

/* TD_EUSAGE if an option for the other kind of network was given: it would have no effect */
static td_status check_kind(const td_serve_opts *o, bool is_detector, bool is_multi_label)
{
    char room[TD_OPTION_NAME];
    const char *const limit = td_box_limit_set(&o->boxes, room);
    const td_network_option rows[] = { { true, limit != NULL, limit },
                                       { true, o->only != NULL, "--only" },
                                       { false, is_given(o, "topk"), "--top" },
                                       { false, is_given(o, "interpolation"), "--interpolation" } };
    TD_TRY(td_network_options_check(rows, sizeof rows / sizeof *rows, is_detector, weights_of(o)));
    return td_network_check_threshold(is_given(o, "threshold"), is_multi_label, weights_of(o));
}

static td_status open_detector(server *s)
{
    const td_serve_opts *o = s->o;
    td_service *service = &s->service;
    service->boxes = o->boxes;
    service->classes = td_predictor_box_classes(s->predictor);
    if (o->only)
        TD_TRY_MSG(td_box_classes_choose(service->classes, o->only, &s->is_wanted), "--only");
    service->is_wanted = s->is_wanted;
    TD_TRY(td_anchors_new(service->transform.detector, service->transform.size, &s->anchors));
    service->n_anchors = s->anchors->n;
    TD_TRY(TD_ALLOC(s->nms, (size_t)service->streams));
    for (int i = 0; i < service->streams; i++)
        TD_TRY(td_nms_pool_new(s->anchors, service->n_classes + 1,
                               td_predictor_threads(s->predictor, i), &s->nms[i]));
    return TD_OK;
}

static void log_memory(const server *s)
{
    const td_predictor_bytes m = td_predictor_memory(s->predictor);
    const int n = s->service.streams, most = td_predictor_threads(s->predictor, 0);
    const bool is_even = td_predictor_threads(s->predictor, n - 1) == most;
    if (n > 1)
        td_log(TD_LOG_INFO, "serve", "%d streams, each of %d%s compute threads", n, most,
               is_even ? "" : " or one less");
    td_log(TD_LOG_INFO, "serve", "memory: %.1f MB of weights, %.1f MB of activations",
           (double)m.params / 1e6, (double)m.activations / 1e6);
}

static td_status open_predictor(server *s)
{
    const td_serve_opts *o = s->o;
    td_predictor_opts po = { .model = o->model,
                             .amp = o->amp,
                             .weights = o->weights,
                             .classes = o->classes,
                             .use_ema = o->use_ema,
                             .interpolation = o->interpolation,
                             .stored_orientation = o->stored_orientation,
                             .device = o->device,
                             .takes_detectors = true,
                             .takes_floats = true, /* tensors of infer requests */
                             .smallest_batch = SMALLEST_BATCH,
                             .streams = o->streams ? o->streams : TD_STREAMS_AUTO };
    td_model_onnx_weights(&po.model, &po.weights);
    if (!po.weights)
        return td_error(TD_EUSAGE, "serve requires --weights FILE");
    if (o->streams > td_threads())
        return td_error(TD_EUSAGE, "--streams %d requires as many --threads, there are %d",
                        o->streams, td_threads());
    TD_TRY(td_predictor_open(&po, &s->predictor));
    const bool is_detector = td_predictor_detector(s->predictor) != TD_DETECTOR_NONE;
    s->service = (td_service){ .kind = is_detector ? &td_kind_detector : &td_kind_classifier,
                               .name = choose_name(s),
                               .precision = td_amp_precision_name(td_predictor_amp(s->predictor)),
                               .topk = o->topk,
                               .is_multi_label = td_predictor_is_multi_label(s->predictor),
                               .threshold = o->threshold,
                               .transform = *td_predictor_transform(s->predictor),
                               .max_batch = o->max_batch,
                               .max_delay_ms = o->max_delay_ms,
                               .streams = td_predictor_streams(s->predictor),
                               .metrics = &s->metrics,
                               .class_name = class_name,
                               .ctx = s->predictor };
    s->service.transform.max_pixels = o->max_pixels;
    s->service.transform.max_scans = MAX_SCANS;
    s->service.transform.by_library = true;
    TD_TRY(check_name(s->service.name));
    TD_TRY(check_kind(o, is_detector, s->service.is_multi_label));
    TD_TRY(td_predictor_add_batch(s->predictor, o->max_batch, INT64_MAX));
    TD_TRY(td_predictor_add_batch(s->predictor, SMALLEST_BATCH, INT64_MAX));
    TD_TRY(td_predictor_finish(s->predictor));
    log_memory(s);
    s->service.n_classes = td_predictor_classes(s->predictor);
    return is_detector ? open_detector(s) : TD_OK;
}

/* access control: token and TLS */
static td_status open_access(server *s)
{
    const td_serve_opts *o = s->o;
    size_t n;
    if (!o->tls_cert != !o->tls_key)
        return td_error(TD_EUSAGE, "--tls-cert and --tls-key require each other");
    if (o->token_file)
        TD_TRY(td_token_read(o->token_file, &s->token));
    if (o->tls_cert) {
        TD_TRY(td_file_read(o->tls_cert, PEM_BYTES_MAX, &s->tls_cert, &n));
        TD_TRY(td_file_read(o->tls_key, PEM_BYTES_MAX, &s->tls_key, &n));
    }
    return TD_OK;
}

/* logs whether other machines can reach the server */
static td_status log_reach(const td_serve_opts *o)
{
    bool is_loopback;
    TD_TRY(td_host_is_loopback(o->host, &is_loopback));
    if (is_loopback)
        td_log(TD_LOG_INFO, "serve",
               "%s accepts connections from this machine only; use --host 0.0.0.0 or :: for others",
               o->host);
    else if (!o->token_file)
        td_log(TD_LOG_WARN, "serve",
               "%s accepts connections from other machines without a token (see --token-file)",
               o->host);
    if (!is_loopback && o->token_file && !o->tls_cert)
        td_log(TD_LOG_WARN, "serve", "the token is sent unencrypted (see --tls-cert)");
    return TD_OK;
}

static td_status open_server(server *s)
{
    const td_serve_opts *o = s->o;
    const int workers =
        o->workers ? o->workers : td_loader_workers(td_cpu_count(), td_core_count());
    td_batcher_opts bo = { .service = &s->service,
                           .predictor = s->predictor,
                           .nms = s->nms,
                           .metrics = &s->metrics,
                           .max_rows = o->max_batch,
                           .max_jobs = o->max_queue,
                           .workers = workers,
                           .large_workers = workers > 4 ? workers / 4 : 1,
                           .max_large = o->max_queue > 4 ? o->max_queue / 4 : 1,
                           .max_delay_ns = (int64_t)(o->max_delay_ms * 1e6) };
    TD_TRY(td_batcher_new(&bo, &s->batcher));
    TD_TRY(td_streams_start(s->predictor, s->batcher, &s->streams));
    td_http_opts ho = { .service = &s->service,
                        .batcher = s->batcher,
                        .metrics = &s->metrics,
                        .host = o->host,
                        .port = o->port,
                        .max_body = o->max_body,
                        .timeout_s = o->timeout,
                        .max_connections = o->max_connections,
                        .token = s->token,
                        .tls_cert = s->tls_cert,
                        .tls_key = s->tls_key };
    return td_http_open(&ho, &s->http);
}

static void run_batches(server *s)
{
    while (!td_signal_caught())
        td_batcher_run_batch(s->batcher, 0, TICK_NS);
}

/* answers all requests received so far; those not received completely in time are cut off */
static void drain(server *s)
{
    const int64_t late_ns = td_now_ns() + (int64_t)(s->o->drain_timeout * 1e9);
    td_http_drain(s->http);
    td_log(TD_LOG_INFO, "serve", "signal received: answering %d remaining requests",
           td_http_requests(s->http));
    while (!td_http_is_over(s->http, td_now_ns() > late_ns))
        td_batcher_run_batch(s->batcher, 0, TICK_NS / 10);
}

static void release(server *s)
{
    td_http_close(s->http);
    td_streams_stop(s->streams);
    td_batcher_free(s->batcher);
    for (int i = 0; s->nms && i < s->service.streams; i++)
        td_nms_pool_free(s->nms[i]);
    td_free(s->nms);
    td_anchors_free(s->anchors);
    td_free(s->is_wanted);
    td_predictor_free(s->predictor);
    td_metrics_release(&s->metrics);
    td_free(s->token);
    td_free(s->tls_cert);
    td_free(s->tls_key);
}

td_status td_serve(const td_serve_opts *opts,
                   td_status (*ready)(void *ctx, const td_serve_address *a), void *ctx)
{
    td_status st = TD_OK;
    server s = { .o = opts };
    td_metrics_init(&s.metrics);
    TD_OUT(td_log_configure(opts->log));
    td_set_threads(opts->device.threads);
    td_signals_catch();
    TD_OUT(open_access(&s));
    TD_OUT(open_predictor(&s));
    TD_OUT(open_server(&s));
    td_serve_address at = { .name = s.service.name,
                            .host = opts->host,
                            .port = td_http_port(s.http),
                            .is_tls = opts->tls_cert != NULL };
    TD_OUT(log_reach(opts));
    st = ready(ctx, &at);
    if (st == TD_OK)
        run_batches(&s);
    drain(&s);
    td_log(TD_LOG_INFO, "serve", "done");
out:
    release(&s);
    return st;
}
