/*
 * gpu_update.c -- steps of an optimiser, gradients over several batches, averages
 *
 * Scalars (lr, inverse, finite ...) stay on the GPU: kernels read them there.  Each kernel runs one
 * node, or the nodes of all parameters in one launch.
 */
#include "backend/gpu/gpu.h"

/* --- operands --------------------------------------------------------------------------------- */

/* tensor i has the type of tensor `like`, whose elements are consecutive floats */
static td_status check_like(const td_node *n, int i, int like)
{
    const td_type *t = td_gpu_type(n, i);
    td_gpu_tensor unused;
    if (!td_type_equal(t, td_gpu_type(n, like)))
        return td_error(TD_ENOKERNEL, "operand %d does not have the type of operand %d", i, like);
    if (!td_dtype_is_float(t->dtype) || t->dtype == TD_DT_F64)
        return td_error(TD_ENOKERNEL, "operand %d is %s", i, td_dtype_name(t->dtype));
    return td_gpu_tensor_of(t, NULL, &unused);
}

/* operands [from, end) are one f32 each */
static td_status check_scalars(const td_node *n, int from, int end)
{
    for (int i = from; i < n->n_in && i < end; i++) {
        const td_type *t = td_in_type(n, i);
        if (t->dtype != TD_DT_F32 || td_type_count(t) != 1)
            return td_error(TD_ENOKERNEL, "operand %d is not one f32", i);
    }
    return TD_OK;
}

/* function_: of the plug-in; it is given the struct_ that fill_OP fills */
#define KERNEL(op_, accepts_, prepare_, struct_, function_, kind_, chained_)                       \
    static td_status run_##op_(const td_prepared *p, void *const *args)                            \
    {                                                                                              \
        struct_ s = { 0 };                                                                         \
        fill_##op_(p, args, &s);                                                                   \
        return td_gpu_status(td_gpu()->function_(&s));                                             \
    }                                                                                              \
    TD_GPU_MULTI(op_, struct_, kind_, chained_)                                                    \
    const td_kernel td_gpu_##op_ = { .name = "cuda_" #op_,                                         \
                                     .op = &td_op_##op_,                                           \
                                     .accepts = accepts_,                                          \
                                     .prepare = prepare_,                                          \
                                     .run = run_##op_,                                             \
                                     .multi = &multi_##op_ };

/* --- steps ------------------------------------------------------------------------------------ */

/* operands; SQUARE not in sgd, REST1 and REST2 in adam and lamb; then inverse, finite, copies */
enum { W, V, G, LR, SQUARE, REST1, REST2 };

static td_status check_copy(const td_node *n, int i)
{
    td_gpu_tensor unused;
    if (!td_dtype_is_half(td_in_type(n, i)->dtype))
        return td_error(TD_ENOKERNEL, "the copy is %s", td_dtype_name(td_in_type(n, i)->dtype));
    return td_gpu_tensor_of(td_in_type(n, i), NULL, &unused);
}

static td_status accepts_step(const td_node *n)
{
    const int copy = td_op_first_copy(n->op), inverse = copy - 2;
    if (td_in_type(n, W)->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "the weight is %s", td_dtype_name(td_in_type(n, W)->dtype));
    if (n->n_in > copy + TD_GPU_COPIES)
        return td_error(TD_ENOKERNEL, "there are more than %d copies", TD_GPU_COPIES);
    for (int i = W; i <= G; i++)
        TD_TRY(check_like(n, i, W));
    TD_TRY(n->op != &td_op_sgd ? check_like(n, SQUARE, W) : TD_OK);
    TD_TRY(td_update_has_momentum(n) ? TD_OK : check_scalars(n, LR, LR + 1));
    TD_TRY(check_scalars(n, n->op == &td_op_sgd ? inverse : REST1, copy));
    for (int i = copy; i < n->n_in; i++)
        TD_TRY(check_copy(n, i));
    return TD_OK;
}

static void fill_step(const td_prepared *p, void *const *args, td_gpu_step *s)
{
    const td_node *n = p->node;
    const int copy = td_op_first_copy(n->op), inverse = copy - 2, finite = copy - 1;
    s->w = td_gpu_tensor_at(p, W, args);
    s->v = args[V];
    s->g = args[G];
    s->lr = args[LR];
    s->reads_momentum = td_update_has_momentum(n);
    s->inverse = n->n_in > inverse ? args[inverse] : NULL;
    s->finite = n->n_in > finite ? args[finite] : NULL;
    s->n_copies = n->n_in > copy ? n->n_in - copy : 0;
    for (int c = 0; c < TD_GPU_COPIES; c++) /* one that is absent is walked like w */
        s->copy[c] = c < s->n_copies ? td_gpu_tensor_at(p, copy + c, args) : s->w;
}

static void fill_sgd(const td_prepared *p, void *const *args, void *out)
{
    const td_sgd_attr *at = p->node->attr;
    td_gpu_step *s = out;
    *s = (td_gpu_step){ .momentum = (float)at->momentum,
                        .decay = (float)at->decay,
                        .nesterov = at->nesterov };
    fill_step(p, args, s);
}
KERNEL(sgd, accepts_step, NULL, td_gpu_step, step, TD_GPU_MULTI_STEP, -1)

static void fill_rmsprop(const td_prepared *p, void *const *args, void *out)
{
    const td_rmsprop_attr *at = p->node->attr;
    td_gpu_step *s = out;
    *s = (td_gpu_step){ .rule = TD_GPU_RMSPROP,
                        .square = args[SQUARE],
                        .momentum = (float)at->momentum,
                        .decay = (float)at->decay,
                        .alpha = (float)at->alpha,
                        .rest = (float)(1 - at->alpha),
                        .eps = (float)at->eps };
    fill_step(p, args, s);
}
KERNEL(rmsprop, accepts_step, NULL, td_gpu_step, step, TD_GPU_MULTI_STEP, -1)

static td_gpu_step moments(const td_prepared *p, void *const *args)
{
    const td_adam_attr *at = p->node->attr;
    return (td_gpu_step){ .square = args[SQUARE],
                          .momentum = (float)at->beta1,
                          .first = (float)(1 - at->beta1),
                          .alpha = (float)at->beta2,
                          .rest = (float)(1 - at->beta2),
                          .eps = (float)at->eps,
                          .decay = at->decoupled ? 0 : (float)at->decay,
                          .decoupled = at->decoupled ? at->decay : 0,
                          .rest1 = args[REST1],
                          .rest2 = args[REST2] };
}

static void fill_adam(const td_prepared *p, void *const *args, void *out)
{
    td_gpu_step *s = out;
    *s = moments(p, args);
    s->rule = TD_GPU_ADAM;
    fill_step(p, args, s);
}
KERNEL(adam, accepts_step, NULL, td_gpu_step, step, TD_GPU_MULTI_STEP, -1)

static td_status prepare_lamb(const td_node *n, td_prepared *out)
{
    out->scratch_bytes = (size_t)td_gpu_squares_bytes(td_type_count(td_gpu_type(n, W)));
    return TD_OK;
}

static void fill_lamb(const td_prepared *p, void *const *args, void *out)
{
    td_gpu_step *s = out;
    *s = moments(p, args);
    s->rule = TD_GPU_LAMB;
    s->scratch = args[p->node->n_in];
    fill_step(p, args, s);
}
KERNEL(lamb, accepts_step, prepare_lamb, td_gpu_step, step, TD_GPU_MULTI_LAMB, -1)

/* --- are all elements finite? ----------------------------------------------------------------- */

static td_status accepts_all_finite(const td_node *n)
{
    TD_TRY(check_like(n, 0, 0));
    return check_scalars(n, 1, 2);
}

static void fill_all_finite(const td_prepared *p, void *const *args, void *out)
{
    const td_node *n = p->node;
    const td_type *x = td_in_type(n, 0);
    *(td_gpu_finite_test *)out = (td_gpu_finite_test){ .x = args[0],
                                                       .dtype = x->dtype,
                                                       .count = td_type_count(x),
                                                       .before = n->n_in > 1 ? args[1] : NULL,
                                                       .y = args[n->n_in] };
}
KERNEL(all_finite, accepts_all_finite, NULL, td_gpu_finite_test, finite_test, TD_GPU_MULTI_FINITE,
       1)

/* --- the norm of a gradient ------------------------------------------------------------------- */

static td_status accepts_grad_norm(const td_node *n)
{
    TD_TRY(check_like(n, 0, 0));
    return check_scalars(n, 1, n->n_in);
}

static td_status prepare_grad_norm(const td_node *n, td_prepared *out)
{
    out->scratch_bytes = (size_t)td_gpu_squares_bytes(td_type_count(td_in_type(n, 0)));
    return TD_OK;
}

static void fill_grad_norm(const td_prepared *p, void *const *args, void *out)
{
    const td_node *n = p->node;
    const td_type *x = td_in_type(n, 0);
    *(td_gpu_norm_of *)out = (td_gpu_norm_of){ .x = args[0],
                                               .dtype = x->dtype,
                                               .count = td_type_count(x),
                                               .inverse = args[1],
                                               .before = n->n_in > 2 ? args[2] : NULL,
                                               .y = args[n->n_in],
                                               .scratch = args[n->n_in + 1] };
}
KERNEL(grad_norm, accepts_grad_norm, prepare_grad_norm, td_gpu_norm_of, norm_of, TD_GPU_MULTI_NORM,
       2)

/* --- gradients over several batches, averages ------------------------------------------------- */

static td_status accepts_carry(const td_node *n)
{
    TD_TRY(check_like(n, 2, 1));
    return check_scalars(n, 3, 4);
}

static void fill_carry(const td_prepared *p, void *const *args, void *out)
{
    const td_type *sum = td_in_type(p->node, 1);
    *(td_gpu_carry_sum *)out = (td_gpu_carry_sum){ .sum = args[1],
                                                   .s = args[2],
                                                   .dtype = sum->dtype,
                                                   .count = td_type_count(sum),
                                                   .last = args[3] };
}
KERNEL(carry, accepts_carry, NULL, td_gpu_carry_sum, carry_sum, TD_GPU_MULTI_CARRY, -1)

static td_status accepts_pair(const td_node *n)
{
    TD_TRY(check_like(n, 1, 0));
    return check_scalars(n, 2, n->n_in);
}

static void fill_ema(const td_prepared *p, void *const *args, void *out)
{
    const td_type *t = td_in_type(p->node, 0);
    *(td_gpu_average *)out = (td_gpu_average){ .value = args[0],
                                               .average = args[1],
                                               .dtype = t->dtype,
                                               .count = td_type_count(t),
                                               .keep = args[2],
                                               .share = args[3],
                                               .finite = p->node->n_in > 4 ? args[4] : NULL };
}
KERNEL(ema, accepts_pair, NULL, td_gpu_average, average, TD_GPU_MULTI_AVERAGE, -1)

static void fill_commit(const td_prepared *p, void *const *args, void *out)
{
    const td_type *t = td_in_type(p->node, 0);
    *(td_gpu_commit_step *)out = (td_gpu_commit_step){ .to = args[0],
                                                       .pending = args[1],
                                                       .dtype = t->dtype,
                                                       .count = td_type_count(t),
                                                       .last = args[2],
                                                       .finite = args[3] };
}
KERNEL(commit, accepts_pair, NULL, td_gpu_commit_step, commit_step, TD_GPU_MULTI_COMMIT, -1)
