/*
 * decompose.c -- decomposes composite ops into simpler ones, and drops what inference leaves out
 *
 *     %y = squeeze_excite %x, ...    ->    global_avg_pool, linear, relu, linear, sigmoid, mul
 *     %y = dropout %x                ->    %x, if it has no random numbers
 *
 * Each composite op defines its decomposition (the decompose hook).
 */
#include "ops/ops.h"
#include "pass/pass.h"

static void decompose_node(td_rewriter *rw, const td_node *n, td_value **in)
{
    td_value *out[TD_OUT_MAX] = { 0 };
    if (td_dropout_is_off(n)) {
        td_rw_set(rw, n->out[0], in[0]);
        rw->n_changed++;
        return;
    }
    if (!n->op->decompose) {
        td_rw_copy_with(rw, n, in);
        return;
    }
    n->op->decompose(rw->b, n, in, out);
    for (int i = 0; i < n->n_out; i++)
        td_rw_set(rw, n->out[i], out[i]);
    rw->n_changed++;
}

const td_pass td_pass_decompose = {
    .name = "decompose",
    .summary = "write composite ops out as simpler ones",
    .counts = "composites written out",
    .is_required = true,
    .node = decompose_node,
};
