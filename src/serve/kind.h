/*
 * serve/kind.h -- the interface of the kinds of served networks: classifier and detector
 *
 * A kind is a table: where images go, how an image becomes a row, what is kept of a row's
 * results, which tensors those are in the protocol, and how the answer to an image is written.
 * Routes, forms, the protocol, batches and limits know none of it.
 *
 *     options -> read_row -> make_room ...  on a worker
 *     take                                  on the thread that computes
 *     write, or fill                        there, too
 */
#ifndef TD_SERVE_KIND_H
#define TD_SERVE_KIND_H

#include "serve/api.h"

/** A row of a batch: row `i` of a request. */
typedef struct {
    td_work *work;
    int i;
} td_row;

/** A tensor that the protocol knows. */
typedef struct {
    const char *name;
    bool is_int; /* INT64, otherwise FP32 */
} td_kind_output;

struct td_kind {
    const char *what; /* "a detector" */
    const char *path; /* where images are posted, "/detect" */
    const char *lack; /* what a network that gives no numbers has none of, "finite boxes" */
    void (*page)(const td_service *s, td_text *out); /* for trying an image in a browser */
    const char *const *params; /* names that `options` knows, NULL-terminated */
    bool are_for_tensors;      /* these are parameters of requests with tensors, too */
    td_kind_output outputs[TD_OUTPUTS_MAX];
    int n_outputs;
    bool has_classes; /* the protocol's extension "classification": outputs are [n, classes] */

    /* parses the query; TD_EARG: invalid parameters */
    td_status (*options)(const td_service *s, const td_request *rq, td_work *w);

    /* an image file -> w->images [3, S, S] */
    td_status (*read_row)(const td_service *s, td_transformer *buffers, const void *bytes, size_t n,
                          td_work *w);

    /* for the results of w->n rows */
    td_status (*make_room)(const td_service *s, td_work *w);

    /* results of n rows of the network's, see td_predictor_take -> the rows' works */
    td_status (*take)(const td_service *s, const td_row *rows, int n,
                      const float *const results[2]);

    bool (*is_finite)(const td_service *s, const td_work *w);

    /* the answer to an image */
    void (*write)(const td_service *s, const td_work *w, td_text *out);

    /* dimensions of output `i` after the rows, and their number; w NULL: by default */
    int (*dims)(const td_service *s, const td_work *w, int i, int dim[2]);

    /* output `i` -> out [n, dims] of float or int64_t */
    void (*fill)(const td_service *s, const td_work *w, int i, void *out);

    /* more members of the model's "parameters" */
    void (*describe)(const td_service *s, td_text *out);
};

extern const td_kind td_kind_classifier, td_kind_detector;

/** The kinds' pages; every one is a document that loads nothing. */
void td_page_of_classes(const td_service *s, td_text *out);
void td_page_of_boxes(const td_service *s, td_text *out);

/** Numbers in a row of output `i`. */
size_t td_output_row(const td_service *s, const td_work *w, int i);

#endif
