/*
 * serve/api.h -- parses requests and writes answers; no sockets, no threads
 *
 *     route = td_api_route(service, "POST", "/classify", &reply)      or `reply` is the answer
 *     td_api_read(service, &request, &buffers, &work, &reply)         body -> rows of images
 *     ...                                                             rows -> results
 *     td_api_write(service, &work, &reply)                            those -> body
 *
 * The inference protocol is KServe's version 2 ("Open Inference Protocol"), with the extensions
 * for binary tensors and classification.  An error is {"error": "sentence"} with a status of 4xx or
 * 5xx.
 */
#ifndef TD_SERVE_API_H
#define TD_SERVE_API_H

#include <stdatomic.h>

#include "base/text.h"
#include "inference/box_classes.h"
#include "inference/nms_pool.h"
#include "serve/serve_metrics.h"
#include "transforms/augment.h"

enum {
    TD_TOPK_MAX = 10,
    TD_OUTPUTS_MAX = 4,       /* output tensors of a network */
    TD_PARAMS_MAX = 16,       /* in the query string */
    TD_ROWS_MAX = 1024,       /* images in a request */
    TD_JSON_BYTES = 64 * 1024 /* in a request's JSON, without the numbers of its tensor */
};

#define TD_JSON_TYPE "application/json"

typedef struct td_kind td_kind; /* kind.h */

/** The served model.  Constant while requests are processed; all threads read it. */
typedef struct {
    const td_kind *kind;    /* a classifier or a detector */
    const char *name;       /* the model's name in paths */
    const char *precision;  /* "bf16" */
    int n_classes;          /* without a detector's background class */
    td_transform transform; /* applied to images; its size is the network's */
    int max_batch;          /* maximum rows per batch */
    int streams;            /* batches computed at the same time */
    double max_delay_ms;
    td_metrics *metrics; /* borrowed; statistics of served requests */

    /* classifiers only */
    int topk;
    bool is_multi_label;
    double threshold; /* multi-label */
    const char *(*class_name)(const void *ctx, int i, char room[24]);
    const void *ctx;

    /* detectors only */
    td_boxes_opts boxes;           /* defaults for requests */
    const bool *is_wanted;         /* [n_classes + 1], indexed by label; NULL: all */
    const td_box_classes *classes; /* class names */
    int n_anchors;
} td_service;

/** ?name=value; the value may be NULL. */
typedef struct {
    const char *name, *value;
} td_query;

/** A complete request.  Texts are borrowed; NULL if absent. */
typedef struct {
    const td_query *params; /* [n_params] */
    int n_params;
    const char *content_type; /* Content-Type */
    const char *json_bytes;   /* Inference-Header-Content-Length */
    const void *body;
    size_t n_body;
} td_request;

/** An answer.  All zero is valid; release with td_text_release(&body). */
typedef struct {
    int status;        /* 200 */
    const char *type;  /* Content-Type */
    const char *allow; /* for status 405 */
    size_t json_bytes; /* Inference-Header-Content-Length; 0: none */
    td_text body;
} td_reply;

typedef enum {
    TD_ROUTE_NONE,  /* the error is in the reply */
    TD_ROUTE_IMAGE, /* the kind's path */
    TD_ROUTE_INFER,
    TD_ROUTE_PAGE,
    TD_ROUTE_ICON,
    TD_ROUTE_METRICS,
    TD_ROUTE_SERVER,
    TD_ROUTE_LIVE,
    TD_ROUTE_READY,
    TD_ROUTE_MODEL,
    TD_ROUTE_MODEL_READY,
    TD_ROUTE_CONFIG,
    TD_ROUTE_STATISTICS,
    TD_ROUTE_INDEX, /* the repository index, which has the one model */
} td_route;

/* An output tensor that the request asks for. */
typedef struct {
    int output; /* index into the kind's outputs */
    bool is_binary;
    int classes; /* classification extension: number of best classes; 0: the tensor */
} td_wanted;

/** The computation of a request, and its results.  All zero is valid. */
typedef struct {
    td_route route;  /* IMAGE or INFER */
    int n;           /* rows */
    float *images;   /* [n, C, S, S], or NULL, with: */
    uint8_t *pixels; /* [n, S, S, C], if the service's transform makes bytes; IMAGE only */
    td_wanted wanted[TD_OUTPUTS_MAX];
    int n_wanted;
    td_text id; /* INFER only; empty: none */

    /* classifiers only; td_api_read allocates `results`, and `found` below */
    int topk; /* IMAGE only, as the next */
    double threshold;
    float *results; /* [2, n, K]: logits, then probabilities */

    /* detectors only */
    td_nms_opts nms;
    bool *is_wanted;     /* replaces the service's is_wanted; NULL: the service's */
    int width, height;   /* IMAGE only: the image's size, upright */
    td_detection *found; /* [n, nms.total] */
    int *n_found;        /* [n] */
    atomic_int n_bad;    /* rows with NaN or infinity in the network's output */
} td_work;

void td_work_release(td_work *w);

/** The route of a request; TD_ROUTE_NONE with status 404, 405 or 501 in `reply`. */
td_route td_api_route(const td_service *s, const char *method, const char *path, td_reply *reply);

/** Write the answer to a route that needs neither body nor computing; `is_ready`: not draining. */
void td_api_describe(const td_service *s, td_route route, bool is_ready, td_reply *reply);

/** Body -> w->images.  False: `reply` is the answer (400; 413 image too large; 500 out of
    memory). */
bool td_api_read(const td_service *s, const td_request *rq, td_transformer *buffers, td_work *w,
                 td_reply *reply) TD_CHECKED;

/** w->results -> answer. */
void td_api_write(const td_service *s, const td_work *w, td_reply *reply);

/** Set `reply` to an error with this sentence. */
void td_reply_error(td_reply *reply, int status, const char *fmt, ...) TD_PRINTF(3, 4);

/**
 * The same, with the thread's error: 500 for TD_ENOMEM, TD_EDEVICE and TD_ENUMERIC, otherwise 400.
 */
void td_reply_failure(td_reply *reply, td_status st);

/* --- parts ------------------------------------------------------------------------------------ */

/** Find the image's bytes in a multipart/form-data body: the part "image", or the first file. */
td_status td_multipart_find(const char *content_type, const char *body, size_t n_body,
                            const char **out, size_t *n_out) TD_CHECKED;

/**
 * Will decoding the request's image take long?  False also if it is not an image: td_image_read
 * then returns the error.
 */
bool td_image_is_large(const td_request *rq);

/**
 * Parameters and image of a request -> w.  TD_EARG invalid parameter; TD_EFORMAT malformed form;
 * TD_ELIMIT more pixels than the transform's max_pixels, or more than 65,535 on a side; errors of
 * decoding.
 */
td_status td_image_read(const td_service *s, const td_request *rq, td_transformer *buffers,
                        td_work *w) TD_CHECKED;

/** Read the body of an infer request into w, and write its answer. */
bool td_infer_is_large(const td_request *rq); /* a long JSON, which takes long to parse */
td_status td_infer_read(const td_service *s, const td_request *rq, td_work *w) TD_CHECKED;
void td_infer_write(const td_service *s, const td_work *w, td_reply *reply);

/**
 * Extract the numbers from a request's JSON: the nested arrays inputs[0].data go to *numbers as
 * float32, row by row, and `rest` gets the text with null in their place, at most TD_JSON_BYTES.
 * *numbers is td_alloc'ed, NULL when there are none.
 *   TD_EFORMAT  malformed, a number that float32 cannot hold, two tensors with data
 *   TD_ELIMIT   more than max_numbers, or a rest that is too long
 */
td_status td_tensor_json_read(const char *text, size_t n, size_t max_numbers, td_text *rest,
                              float **numbers, size_t *n_numbers) TD_CHECKED;

#endif
