/*
 * linears.c -- inference: linear layers compute what follows them
 *
 *     linear                           -> linear_fused           with a weight in another layout
 *     linear, gelu                     -> linear_fused {gelu}
 *     linear, add                      -> linear_fused with the residual
 *     linear, reshape, transpose, add  -> the same, reshape, transpose
 *
 * In the last form the rows are pixels, [N H W, C], and the sum is one of images [N, C, H, W]; the
 * residual is transposed to rows, which costs nothing where the layout pass finds it in channels
 * last.
 *
 * Training keeps linear: gradients read gelu's operand, and a weight that changes in every step
 * gains nothing by a copy in another layout.
 */
#include "ir/match.h"
#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "plan/plan.h"

/* what a linear layer is fused with */
typedef struct {
    const td_node *linear, *reshape, *transpose; /* NULL: none */
    const td_value *residual;                    /* old value, NULL: none */
    bool gelu;
} fusion;

static const int to_images[] = { 0, 3, 1, 2 }, to_rows[] = { 0, 2, 3, 1 };

/* the linear layer that makes operand v of a sum, perhaps as images */
static bool find_linear(const td_uses *u, const td_value *v, fusion *f)
{
    f->transpose = td_uses_producer(u, v, &td_op_transpose);
    if (f->transpose) {
        if (!td_transpose_is(f->transpose, TD_PERM_TO_FIRST))
            return false;
        v = f->transpose->in[0];
        f->reshape = td_uses_producer(u, v, &td_op_reshape);
        if (!f->reshape)
            return false;
        v = f->reshape->in[0];
    }
    f->linear = td_uses_producer(u, v, &td_op_linear);
    return f->linear && (!f->transpose || v->type.dim[1] == f->reshape->out[0]->type.dim[3]);
}

static bool match_add(const td_uses *u, const td_node *n, fusion *f)
{
    for (int i = 0; i < 2; i++) {
        *f = (fusion){ .residual = n->in[1 - i] };
        if (find_linear(u, n->in[i], f) && f->linear->n_in > 2 && n->in[0] != n->in[1] &&
            td_type_equal(td_in_type(n, 0), td_in_type(n, 1)))
            return true;
    }
    return false;
}

static bool match(const td_uses *u, const td_node *n, fusion *f)
{
    *f = (fusion){ 0 };
    if (n->op == &td_op_add)
        return match_add(u, n, f);
    if (n->op == &td_op_gelu) {
        f->linear = td_uses_producer(u, n->in[0], &td_op_linear);
        f->gelu = true;
    } else if (n->op == &td_op_linear) {
        f->linear = n;
    }
    return f->linear;
}

/* is the weight fixed, and has the target a kernel? */
static bool is_possible(const td_rewriter *rw, const bool *is_fixed, const fusion *f)
{
    td_linear_fused_attr attr = { .gelu = f->gelu };
    td_probe p;
    if (!is_fixed[f->linear->in[1]->producer->id] || td_is_tf32(f->linear))
        return false;
    td_probe_init(&p, f->linear);
    p.node.op = &td_op_linear_fused;
    p.node.attr = &attr;
    return td_probe_has_kernel(&p, rw->target);
}

static void emit(td_rewriter *rw, const td_node *root, const fusion *f)
{
    const td_linear_fused_attr attr = { .gelu = f->gelu };
    const td_node *linear = f->linear;
    td_value *in[4] = { 0 };
    for (int i = 0; i < linear->n_in; i++)
        in[i] = td_rw_get(rw, linear->in[i]);
    if (f->residual) {
        in[3] = td_rw_get(rw, f->residual);
        if (f->transpose)
            in[3] =
                td_reshape(rw->b, td_transpose(rw->b, in[3], to_rows), 2, linear->out[0]->type.dim);
    }
    td_value *y = td_emit_n(rw->b, &td_op_linear_fused, &attr, 4, in, NULL);
    if (f->transpose)
        y = td_transpose(rw->b, td_reshape(rw->b, y, 4, f->reshape->out[0]->type.dim), to_images);
    td_rw_set(rw, root->out[0], y);
    rw->n_changed += root == linear;
}

static void linears_run(td_rewriter *rw)
{
    td_uses u;
    fusion f;
    bool *is_fixed = NULL;
    td_status st = td_uses_init(&u, rw->old);
    if (st == TD_OK)
        st = td_plan_fixed_new(rw->old, &is_fixed);
    if (st != TD_OK)
        td_build_fail(rw->b, st);
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = rw->old->nodes[i];
        if (match(&u, n, &f) && is_possible(rw, is_fixed, &f))
            emit(rw, n, &f);
        else
            td_rw_copy(rw, n);
    }
    td_uses_release(&u);
    td_free(is_fixed);
}

const td_pass td_pass_linears = {
    .name = "linears",
    .summary = "gelu and residuals in linear layers, weights in the device's layout, for inference",
    .counts = "linear layers",
    .run = linears_run,
};
