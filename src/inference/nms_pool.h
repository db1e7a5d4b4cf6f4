/*
 * inference/nms_pool.h -- from a detector's raw outputs to boxes, several pictures at a time
 *
 *     td_suppressor *s;
 *     TD_TRY(td_suppressor_new(anchors, 91, td_threads(), &s));
 *     td_suppressor_row rows[2] = { { .opts = &nms, .found = a }, { .opts = &nms, .found = b } };
 *     TD_TRY(td_suppressor_run(s, codes, scores, 2, rows));      a picture a thread
 *     td_suppressor_free(s);
 */
#ifndef TD_INFERENCE_NMS_POOL_H
#define TD_INFERENCE_NMS_POOL_H

#include "boxes/nms.h"

typedef struct td_suppressor td_suppressor;

/** A picture: what is asked for, and what there is. */
typedef struct {
    const td_nms_opts *opts;
    td_detection *found; /* [opts->total], best first */
    int n_found;
    bool is_finite; /* every code and score was a finite number; only where wants_finite */
    bool wants_finite;
} td_suppressor_row;

/** `anchors` are lent; columns: classes and the background. */
td_status td_suppressor_new(const td_anchors *anchors, int columns, int n_threads,
                            td_suppressor **out) TD_CHECKED;
void td_suppressor_free(td_suppressor *s);

/** codes [n, A, 4], scores [n, A, columns] -> the rows' found, n_found, is_finite. */
td_status td_suppressor_run(td_suppressor *s, const float *codes, const float *scores, int n,
                            td_suppressor_row *rows) TD_CHECKED;

#endif
