/*
 * serve/kind.h -- the interface of the kinds of served networks: classifier and detector
 *
 * A kind is a table of functions and names: the path for images, how an image becomes a row, which
 * results of a row are kept, their tensors in the protocol, and how the answer to an image is
 * written.  Routes, forms, the protocol, batches and limits do not depend on the kind.
 *
 *     options -> read_row -> make_room ...  on a worker
 *     store_results                         on the thread of a stream
 *     write, or fill                        likewise
 */
#ifndef TD_SERVE_KIND_H
#define TD_SERVE_KIND_H

#include "serve/api.h"

/** A row of a batch: row `i` of a request. */
typedef struct {
    td_work *work;
    int i;
} td_row;

/** An output tensor in the protocol. */
typedef struct {
    const char *name;
    bool is_int; /* INT64, otherwise FP32 */
} td_kind_output;

struct td_kind {
    const char *what;                                /* "a detector" */
    const char *path;                                /* where images are posted, "/detect" */
    const char *missing_output;                      /* what NaN outputs lack: "finite boxes" */
    void (*page)(const td_service *s, td_text *out); /* to try an image in a browser */
    const char *const *params; /* names that `options` accepts, NULL-terminated */
    bool are_for_tensors;      /* infer requests accept them too */
    td_kind_output outputs[TD_OUTPUTS_MAX];
    int n_outputs;
    bool has_classes; /* the protocol's extension "classification": outputs are [n, classes] */

    /* parses the query; TD_EARG: invalid parameters */
    td_status (*options)(const td_service *s, const td_request *rq, td_work *w);

    /* an image file -> row: what the service's transform makes */
    td_status (*read_row)(const td_service *s, td_transformer *buffers, const void *bytes, size_t n,
                          td_work *w, void *row);

    /* allocates room for the results of w->n rows */
    td_status (*make_room)(const td_service *s, td_work *w);

    /* the network's results of n rows (see td_predictor_take) -> the td_work of each row */
    td_status (*store_results)(const td_service *s, td_nms_pool *nms, const td_row *rows, int n,
                               const float *const results[2]);

    bool (*is_finite)(const td_service *s, const td_work *w);

    /* writes the answer to an image */
    void (*write)(const td_service *s, const td_work *w, td_text *out);

    /* the dimensions of output `i` after the rows; returns their number.  w NULL: the defaults */
    int (*dims)(const td_service *s, const td_work *w, int i, int dim[2]);

    /* output `i` -> out [n, dims] of float or int64_t */
    void (*fill)(const td_service *s, const td_work *w, int i, void *out);

    /* adds members to the model's "parameters" */
    void (*describe)(const td_service *s, td_text *out);
};

extern const td_kind td_kind_classifier, td_kind_detector;

/** The kinds' pages; each is one self-contained document. */
void td_page_of_classes(const td_service *s, td_text *out);
void td_page_of_boxes(const td_service *s, td_text *out);

/** The number of values in a row of output `i`. */
size_t td_output_row(const td_service *s, const td_work *w, int i);

#endif
