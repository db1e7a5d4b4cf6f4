/*
 * inference/nms_pool.h -- non-maximum suppression of several images at a time
 *
 *     td_nms_pool *s;
 *     TD_TRY(td_nms_pool_new(anchors, 91, td_threads(), &s));
 *     td_nms_pool_row rows[2] = { { .opts = &nms, .found = a }, { .opts = &nms, .found = b } };
 *     TD_TRY(td_nms_pool_run(s, deltas, scores, 2, rows));      one image per thread
 *     td_nms_pool_free(s);
 */
#ifndef TD_INFERENCE_NMS_POOL_H
#define TD_INFERENCE_NMS_POOL_H

#include "boxes/nms.h"

typedef struct td_nms_pool td_nms_pool;

/** An image: settings and results. */
typedef struct {
    const td_nms_opts *opts;
    td_detection *found; /* [opts->total], best first */
    int n_found;
    bool is_finite; /* all deltas and scores were finite; only with wants_finite */
    bool wants_finite;
} td_nms_pool_row;

/** `anchors` is borrowed; columns: classes and the background. */
td_status td_nms_pool_new(const td_anchors *anchors, int columns, int n_threads,
                          td_nms_pool **out) TD_CHECKED;
void td_nms_pool_free(td_nms_pool *s);

/** Process deltas [n, A, 4] and scores [n, A, columns]; set the rows' found, n_found, is_finite. */
td_status td_nms_pool_run(td_nms_pool *s, const float *deltas, const float *scores, int n,
                          td_nms_pool_row *rows) TD_CHECKED;

#endif
