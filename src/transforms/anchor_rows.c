/*
 * anchor_rows.c -- training targets of the anchors, row by row
 */
#include "transforms/anchor_rows.h"

#include <string.h>

#include "base/arena.h"

enum { DELTAS = 4 };

td_status td_anchor_rows_init(td_anchor_rows *rows, const td_anchors *a, int n)
{
    size_t cells = (size_t)a->n * (size_t)n;
    rows->n_anchors = a->n;
    TD_TRY(TD_ALLOC(rows->labels, cells));
    return td_alloc_to(&rows->deltas, cells, DELTAS * sizeof *rows->deltas);
}

void td_anchor_rows_release(td_anchor_rows *rows)
{
    td_free(rows->labels);
    td_free(rows->deltas);
    *rows = (td_anchor_rows){ 0 };
}

td_status td_anchor_rows_fill(td_anchor_rows *rows, int i, const td_anchors *a, td_transformer *w,
                              const td_ground_truth *ground_truths, int n)
{
    size_t at = (size_t)i * (size_t)a->n;
    if (!w->scratch)
        w->scratch = td_alloc(1, td_targets_scratch_bytes(a));
    if (!w->scratch)
        return TD_ENOMEM;
    (void)td_targets_assign(a, ground_truths, n, w->scratch, rows->labels + at,
                            rows->deltas + DELTAS * at);
    return TD_OK;
}

void td_anchor_rows_move(td_anchor_rows *rows, int to, int from)
{
    size_t n = (size_t)rows->n_anchors, a = (size_t)to * n, b = (size_t)from * n;
    if (n == 0 || to == from)
        return;
    memcpy(rows->labels + a, rows->labels + b, n * sizeof *rows->labels);
    memcpy(rows->deltas + DELTAS * a, rows->deltas + DELTAS * b, DELTAS * n * sizeof *rows->deltas);
}
