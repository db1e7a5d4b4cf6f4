/*
 * norms.c -- batch norms that convolutions compute, where the target has kernels for that
 *
 * In a training graph in half, a norm reads its images three times in the forward half: for the
 * statistics, to normalize, and as the next convolution's input.  Where the target supports it,
 * the convolution before leaves the sums for the statistics, and the convolution after normalizes
 * as it reads:
 *
 *     %c = conv2d %x, %w                        %c, %s, %q = conv2d_statistics %x, %w
 *     %y, %m, %v, %k =                   ->     %m, %v, %scale, %shift =
 *         batch_norm_relu %c, %g, %b                batch_norm_statistics %s, %q, %g, %b
 *     %d = conv2d %y, %u                        %d, ... = conv2d_statistics %c, %u, %scale, %shift
 *     ...                                       ...
 *     conv2d_grad_w %dd, %y, %u                 conv2d_scale_relu_grad_w %dd, %c, %u, %scale, ...
 *     conv2d_grad_x %dd, %u, %y                 conv2d_grad_x %dd, %u, %c      (for its shape)
 *     batch_norm_relu_grad %dy, %k, %c, ...     batch_norm_scale_relu_grad %dy, %c, ..., %scale
 *
 * A norm whose result has other readers, at the end of a block or before pooling, becomes the op
 * with given statistics.  Where there is no kernel for the filter's gradient (bfloat16), scale and
 * shift are float32, and the gradient's operand is computed again by batch_norm_relu_infer.
 *
 * Source: Jung et al. 2019, Restructuring batch normalization to accelerate CNN training.
 */

#include "ir/match.h"
#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"

typedef enum {
    STORED,     /* the norm's result is a tensor */
    IN_BOTH,    /* the convolutions that read it compute it, and so do their filters' gradients */
    IN_FORWARD, /* only the former */
} where;

/* of a norm whose statistics come from sums */
typedef struct {
    bool is_fused;
    where at;
    td_value *scale, *shift; /* new values, once emitted */
} norm_state;

typedef struct {
    const td_graph *g;
    const td_target *target;
    td_uses uses;
    norm_state *norms;    /* [nodes] */
    const td_node **of;   /* [nodes] of a convolution: the norm that uses its sums, or NULL */
    td_value *(*sums)[2]; /* [nodes] of such a convolution, once emitted */
} state;

/* --- what the target supports ----------------------------------------------------------------- */

/* `conv` with sums, of its operand or of relu(scale x + shift) with vectors of dtype `vectors` */
static bool supports_statistics(const state *s, const td_node *conv, td_dtype vectors)
{
    const td_type *x = td_in_type(conv, 0);
    const td_type k = td_type_1d(TD_DT_F32, conv->out[0]->type.dim[1]);
    const td_type c = td_type_1d(vectors ? vectors : TD_DT_F32, x->dim[1]);
    td_value sums = { .type = k }, vector = { .type = c };
    td_value *in[] = { conv->in[0], conv->in[1], &vector, &vector };
    td_value *out[] = { conv->out[0], &sums, &sums };
    td_node n = *conv;
    td_probe p;
    n.op = &td_op_conv2d_statistics;
    n.out = out;
    n.n_out = 3;
    td_probe_init_with(&p, &n, vectors ? 4 : 2, in);
    return td_probe_has_kernel(&p, s->target);
}

static bool supports_grad_w(const state *s, const td_node *grad, td_dtype vectors)
{
    td_value vector = { .type = td_type_1d(vectors, td_in_type(grad, 1)->dim[1]) };
    td_value *in[] = { grad->in[0], grad->in[1], grad->in[2], &vector, &vector };
    td_node n = *grad;
    td_probe p;
    n.op = &td_op_conv2d_scale_relu_grad_w;
    td_probe_init_with(&p, &n, 5, in);
    return td_probe_has_kernel(&p, s->target);
}

/* --- norms whose statistics come from sums ---------------------------------------------------- */

static bool is_norm(const td_node *n)
{
    return n->op == &td_op_batch_norm || n->op == &td_op_batch_norm_relu ||
           n->op == &td_op_batch_norm_add_relu;
}

/* does only batch_norm_relu_grad read the mask? */
static bool can_omit_mask(const state *s, const td_node *norm)
{
    int n;
    const td_node *const *users = td_uses_of(&s->uses, norm->out[3], &n);
    for (int i = 0; i < n; i++)
        if (users[i]->op != &td_op_batch_norm_relu_grad || users[i]->in[1] != norm->out[3] ||
            users[i]->in[2] != norm->in[0])
            return false;
    return true;
}

static void find_norms(state *s)
{
    for (int i = 0; i < s->g->n_nodes; i++) {
        const td_node *n = s->g->nodes[i];
        const td_node *conv = is_norm(n) ? n->in[0]->producer : NULL;
        if (!conv || conv->op != &td_op_conv2d || s->of[conv->id] ||
            !td_dtype_is_half(td_in_type(n, 0)->dtype) ||
            (n->op == &td_op_batch_norm_relu &&
             (!can_omit_mask(s, n) || td_value_is_output(s->g, n->out[3]))) ||
            !supports_statistics(s, conv, TD_DT_NONE))
            continue;
        s->of[conv->id] = n;
        s->norms[i].is_fused = true;
    }
}

/* --- norms that the next convolution computes ------------------------------------------------- */

static int count_reads(const td_node *n, const td_value *v)
{
    int count = 0;
    for (int i = 0; i < n->n_in; i++)
        count += n->in[i] == v;
    return count;
}

/* a convolution of y with sums, or one of its gradients */
static bool may_read(const state *s, const td_node *n, const td_value *y)
{
    if (count_reads(n, y) != 1)
        return false;
    return (n->op == &td_op_conv2d && n->in[0] == y && s->of[n->id]) ||
           (n->op == &td_op_conv2d_grad_w && n->in[1] == y &&
            !((const td_conv_attr *)n->attr)->wide) ||
           (n->op == &td_op_conv2d_grad_x && n->in[2] == y);
}

/* have all readers of y that `op` names a kernel with vectors of this dtype? */
static bool all_support(const state *s, const td_value *y, const td_op *op, td_dtype vectors)
{
    int n;
    const td_node *const *users = td_uses_of(&s->uses, y, &n);
    for (int i = 0; i < n; i++)
        if (users[i]->op == op &&
            !(op == &td_op_conv2d ? supports_statistics : supports_grad_w)(s, users[i], vectors))
            return false;
    return true;
}

/* can the norm be computed again at each filter's gradient? */
static bool can_repeat(const state *s, const td_node *norm)
{
    int n;
    const td_node *const *users = td_uses_of(&s->uses, norm->out[0], &n);
    for (int i = 0; i < n; i++)
        if (users[i]->op == &td_op_conv2d_grad_w &&
            td_overwritten_between(s->g, norm->id, users[i]->id, norm))
            return false;
    return true;
}

static where choose_place(const state *s, const td_node *norm)
{
    const td_value *y = norm->out[0];
    const td_dtype d = y->type.dtype;
    int n, n_convs = 0;
    const td_node *const *users = td_uses_of(&s->uses, y, &n);
    for (int i = 0; i < n; i++) {
        if (!may_read(s, users[i], y))
            return STORED;
        n_convs += users[i]->op == &td_op_conv2d;
    }
    if (norm->op != &td_op_batch_norm_relu || ((const td_norm_attr *)norm->attr)->relu6 ||
        n_convs == 0 || td_value_is_output(s->g, y))
        return STORED;
    if (all_support(s, y, &td_op_conv2d_grad_w, d) && all_support(s, y, &td_op_conv2d, d))
        return IN_BOTH;
    return can_repeat(s, norm) && all_support(s, y, &td_op_conv2d, TD_DT_F32) ? IN_FORWARD : STORED;
}

static void find_places(state *s)
{
    for (int i = 0; i < s->g->n_nodes; i++)
        if (s->norms[i].is_fused)
            s->norms[i].at = choose_place(s, s->g->nodes[i]);
}

/* --- the new graph ---------------------------------------------------------------------------- */

/* the norm that made `v`, if v is not stored; otherwise NULL */
static const td_node *omitted(const state *s, const td_value *v)
{
    const td_node *n = v->producer;
    return v->index == 0 && s->norms[n->id].at != STORED ? n : NULL;
}

static void emit_conv(td_rewriter *rw, state *s, const td_node *n)
{
    const td_node *before = omitted(s, n->in[0]);
    td_value *out[TD_OUT_MAX], *in[4] = { 0 };
    in[0] = td_rw_get(rw, before ? before->in[0] : n->in[0]);
    in[1] = td_rw_get(rw, n->in[1]);
    if (before) {
        in[2] = s->norms[before->id].scale;
        in[3] = s->norms[before->id].shift;
    }
    td_emit_n(rw->b, &td_op_conv2d_statistics, n->attr, before ? 4 : 2, in, out);
    td_rw_set(rw, n->out[0], out[0]);
    s->sums[n->id][0] = out[1];
    s->sums[n->id][1] = out[2];
}

/* y of `norm` from given statistics, which are rw's; its mask goes to `mask` if there is a sum */
static td_value *emit_given(td_rewriter *rw, const td_node *norm, td_value **mask)
{
    const bool has_add = norm->op == &td_op_batch_norm_add_relu;
    const td_op *op = has_add                              ? &td_op_batch_norm_add_relu_given
                      : norm->op == &td_op_batch_norm_relu ? &td_op_batch_norm_relu_infer
                                                           : &td_op_batch_norm_infer;
    td_value *out[TD_OUT_MAX];
    td_value *in[] = { td_rw_get(rw, norm->in[0]),  td_rw_get(rw, norm->in[1]),
                       td_rw_get(rw, norm->in[2]),  td_rw_get(rw, norm->out[1]),
                       td_rw_get(rw, norm->out[2]), has_add ? td_rw_get(rw, norm->in[3]) : NULL };
    td_emit_n(rw->b, op, norm->attr, op->n_in, in, out);
    if (has_add && mask)
        *mask = out[1];
    return out[0];
}

static void emit_norm(td_rewriter *rw, state *s, const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    norm_state *norm = &s->norms[n->id];
    td_norm_attr attr = *(const td_norm_attr *)n->attr;
    td_value *const *sums = s->sums[n->in[0]->producer->id];
    td_value *out[TD_OUT_MAX], *mask = NULL;
    td_value *in[] = { sums[0], sums[1], td_rw_get(rw, n->in[1]), td_rw_get(rw, n->in[2]) };
    attr.count = x->dim[0] * x->dim[2] * x->dim[3];
    attr.to = norm->at == IN_BOTH ? td_norm_vectors_to(x->dtype) : 0;
    td_emit_n(rw->b, &td_op_batch_norm_statistics, &attr, 4, in, out);
    td_rw_set(rw, n->out[1], out[0]);
    td_rw_set(rw, n->out[2], out[1]);
    norm->scale = out[2];
    norm->shift = out[3];
    if (norm->at == STORED)
        td_rw_set(rw, n->out[0], emit_given(rw, n, &mask));
    if (mask)
        td_rw_set(rw, n->out[3], mask);
    rw->n_changed++;
}

/* the fused norm whose mask `grad` reads, if it has none now; otherwise NULL */
static const td_node *norm_of_grad(const state *s, const td_node *grad)
{
    const td_node *norm = grad->op == &td_op_batch_norm_relu_grad ? grad->in[1]->producer : NULL;
    return norm && norm->op == &td_op_batch_norm_relu && s->norms[norm->id].is_fused ? norm : NULL;
}

static void emit_norm_grad(td_rewriter *rw, state *s, const td_node *n, const td_node *norm)
{
    td_norm_attr attr = *(const td_norm_attr *)n->attr;
    td_value *out[TD_OUT_MAX];
    td_value *in[] = { td_rw_get(rw, n->in[0]), td_rw_get(rw, n->in[2]), td_rw_get(rw, n->in[3]),
                       td_rw_get(rw, n->in[4]), td_rw_get(rw, n->in[5]), s->norms[norm->id].scale,
                       s->norms[norm->id].shift };
    attr.relu6 = ((const td_norm_attr *)norm->attr)->relu6;
    td_emit_n(rw->b, &td_op_batch_norm_scale_relu_grad, &attr, 7, in, out);
    for (int i = 0; i < 3; i++)
        td_rw_set(rw, n->out[i], out[i]);
}

static void emit_grad_w(td_rewriter *rw, state *s, const td_node *n, const td_node *norm)
{
    const norm_state *of = &s->norms[norm->id];
    td_value *dy = td_rw_get(rw, n->in[0]), *w = td_rw_get(rw, n->in[2]), *dw;
    if (of->at == IN_BOTH)
        dw = td_emit(rw->b, &td_op_conv2d_scale_relu_grad_w, n->attr, dy,
                     td_rw_get(rw, norm->in[0]), w, of->scale, of->shift);
    else
        dw = td_emit(rw->b, n->op, n->attr, dy, emit_given(rw, norm, NULL), w);
    td_rw_set(rw, n->out[0], dw);
}

/* a gradient that reads only the shape of what is not stored */
static void emit_grad_x(td_rewriter *rw, const td_node *n, const td_node *norm)
{
    td_value *in[] = { td_rw_get(rw, n->in[0]), td_rw_get(rw, n->in[1]),
                       td_rw_get(rw, norm->in[0]) };
    td_rw_copy_with(rw, n, in);
}

static void emit_node(td_rewriter *rw, state *s, const td_node *n)
{
    const td_node *norm;
    if (s->of[n->id])
        emit_conv(rw, s, n);
    else if (s->norms[n->id].is_fused)
        emit_norm(rw, s, n);
    else if ((norm = norm_of_grad(s, n)))
        emit_norm_grad(rw, s, n, norm);
    else if (n->op == &td_op_conv2d_grad_w && (norm = omitted(s, n->in[1])))
        emit_grad_w(rw, s, n, norm);
    else if (n->op == &td_op_conv2d_grad_x && (norm = omitted(s, n->in[2])))
        emit_grad_x(rw, n, norm);
    else
        td_rw_copy(rw, n);
}

static void norms_run(td_rewriter *rw)
{
    const size_t n = (size_t)rw->old->n_nodes + 1;
    state s = { .g = rw->old, .target = rw->target };
    if (!rw->target || !rw->target->fuses_norms) {
        td_rw_copy_all(rw);
        return;
    }
    td_status st = td_uses_init(&s.uses, rw->old);
    s.norms = td_alloc(n, sizeof *s.norms);
    s.of = td_alloc(n, sizeof *s.of);
    s.sums = td_alloc(n, sizeof *s.sums);
    if (st == TD_OK && s.norms && s.of && s.sums) {
        find_norms(&s);
        find_places(&s);
        for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++)
            emit_node(rw, &s, rw->old->nodes[i]);
    } else {
        td_build_fail(rw->b, st == TD_OK ? TD_ENOMEM : st);
    }
    td_uses_release(&s.uses);
    td_free(s.norms);
    td_free((void *)s.of);
    td_free(s.sums);
}

const td_pass td_pass_norms = {
    .name = "norms",
    .summary = "let convolutions compute the batch norms before and after them, on GPUs",
    .counts = "norms whose statistics a convolution computes",
    .run = norms_run,
};
