/*
 * gpu_gemm.c -- linear layers and products of batches of matrices, by the plug-in's library
 * (cuBLASLt)
 *
 * Sums are float32.  The library adds biases of its result's dtype only, so a float32 bias of a
 * half problem is rounded to half first.  The scratch memory is
 *
 *     bias in half | as much as the next multiple of TD_GPU_WORKSPACE_ALIGN needs | workspace
 *
 * The library has one step from a matrix of a batch to the next, for each tensor; batches that are
 * repeated in another way are left to gpu_matmul.c.
 */
#include <stdio.h>

#include "backend/gpu/gpu.h"

/* which operand or result of a node is a, b, y; bias 0: none */
typedef struct {
    int a, b, y, bias;
} roles;

static roles roles_of(const td_node *n)
{
    roles r = { .a = 0, .b = 1, .y = n->n_in };
    const bool is_grad = n->op == &td_op_linear_grad_x || n->op == &td_op_linear_grad_w;
    r.bias = !is_grad && n->n_in > 2 ? 2 : 0;
    return r;
}

/* --- the problem ------------------------------------------------------------------------------ */

static void read_linear(const td_node *n, td_gpu_gemm_plan *p)
{
    const td_type *a = td_in_type(n, 0), *b = td_in_type(n, 1), *y = &n->out[0]->type;
    p->transpose_a = n->op == &td_op_linear_grad_w; /* dw = dy^T x */
    p->transpose_b = n->op == &td_op_linear;        /* y = x w^T */
    p->m = y->dim[0];
    p->n = b->dim[p->transpose_b ? 0 : 1];
    p->k = a->dim[p->transpose_a ? 0 : 1];
    p->batch = 1;
}

/* from a matrix to the next along dimension d of the batch */
static int64_t step_of(const td_gpu_tensor *t, int d)
{
    return t->dim[d] == 1 ? 0 : t->stride[d];
}

/* false: there is no one step */
static bool read_batch(const td_node *n, td_gpu_gemm_plan *p)
{
    td_gpu_tensor a, b, y;
    if (td_gpu_tensor_of(td_in_type(n, 0), NULL, &a) != TD_OK ||
        td_gpu_tensor_of(td_in_type(n, 1), NULL, &b) != TD_OK ||
        td_gpu_tensor_of(&n->out[0]->type, NULL, &y) != TD_OK)
        return false;
    p->batch = 1;
    p->y_step = p->m * p->n;
    for (int d = TD_GPU_RANK - 3; d >= 0; d--) {
        if (y.dim[d] == 1)
            continue;
        if (p->batch == 1) {
            p->a_step = step_of(&a, d);
            p->b_step = step_of(&b, d);
        } else if (step_of(&a, d) != p->a_step * p->batch ||
                   step_of(&b, d) != p->b_step * p->batch) {
            return false;
        }
        p->batch *= y.dim[d];
    }
    return true;
}

/* the rows of all products as one matrix, if they have one b */
static void join_rows(td_gpu_gemm_plan *p)
{
    if (p->b_step != 0 || p->transpose_a || p->a_step != p->m * p->k)
        return;
    p->m *= p->batch;
    p->batch = 1;
}

static td_status read_matmul(const td_node *n, td_gpu_gemm_plan *p)
{
    const td_matmul_attr *at = n->attr;
    const td_matmul_sizes s = td_matmul_sizes_of(n);
    p->transpose_a = at->transpose_a;
    p->transpose_b = at->transpose_b;
    p->m = s.m;
    p->n = s.n;
    p->k = s.k;
    if (!read_batch(n, p))
        return td_error(TD_ENOKERNEL, "the batch is repeated in two dimensions");
    join_rows(p);
    return TD_OK;
}

static td_status read_problem(const td_node *n, td_gpu_gemm_plan *p)
{
    const td_dtype d = td_in_type(n, 0)->dtype;
    *p = (td_gpu_gemm_plan){ .dtype = d,
                             .wide = n->out[0]->type.dtype != d,
                             .has_bias = roles_of(n).bias,
                             .allow_tf32 = td_is_tf32(n) };
    if (n->op == &td_op_matmul)
        TD_TRY(read_matmul(n, p));
    else
        read_linear(n, p);
    if (p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX || p->batch > INT32_MAX)
        return td_error(TD_ENOKERNEL, "a dimension is above 2^31 - 1");
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    td_gpu_gemm_plan unused;
    const td_dtype d = td_in_type(n, 0)->dtype;
    if (d != TD_DT_F32 && !td_dtype_is_half(d))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(d));
    TD_TRY(td_gpu_check_plain(n));
    return read_problem(n, &unused);
}

/* --- a node ----------------------------------------------------------------------------------- */

typedef struct {
    void *plan;
    size_t bias_bytes;      /* size of the bias in half; 0: it is not rounded */
    size_t workspace_bytes; /* size that the plan requires */
} gemm_state;

static td_status plan(const td_node *n, int choice, td_gpu_planned *made)
{
    td_gpu_gemm_plan p;
    TD_TRY(read_problem(n, &p));
    p.choice = choice;
    p.made = made;
    const td_status st = td_gpu_status(td_gpu()->gemm_plan(&p));
    return st != TD_OK && choice > 0 ? td_error(TD_ENOKERNEL, "cuBLASLt has no other algorithm")
                                     : st;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const roles r = roles_of(n);
    td_gpu_planned made = { 0 };
    gemm_state *s = TD_NEW(gemm_state);
    if (!s)
        return TD_ENOMEM;
    td_status st = plan(n, out->kernel->variant, &made);
    if (st != TD_OK) {
        td_free(s);
        return st;
    }
    *s = (gemm_state){ .plan = made.plan, .workspace_bytes = made.scratch_bytes };
    if (r.bias && td_is_wide_operand(n, r.bias))
        s->bias_bytes = (size_t)td_type_bytes(td_gpu_type(n, r.bias)) / 2;
    out->state = s;
    out->scratch_bytes = s->bias_bytes;
    if (s->workspace_bytes)
        out->scratch_bytes += TD_GPU_WORKSPACE_ALIGN + s->workspace_bytes;
    (void)snprintf(out->impl, sizeof out->impl, "%s", made.impl);
    return TD_OK;
}

static void *workspace_at(const gemm_state *s, void *scratch)
{
    if (!s->workspace_bytes)
        return NULL;
    char *p = (char *)scratch + s->bias_bytes;
    return p + (TD_GPU_WORKSPACE_ALIGN - (uintptr_t)p % TD_GPU_WORKSPACE_ALIGN);
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const gemm_state *s = p->state;
    const roles r = roles_of(n);
    void *scratch = args[n->n_in + n->n_out], *bias = r.bias ? args[r.bias] : NULL;
    if (s->bias_bytes) {
        bias = scratch;
        TD_TRY(td_gpu_round_operand(p, r.bias, args, bias));
    }
    const td_gpu_gemm_run g = { .plan = s->plan,
                                .a = args[r.a],
                                .b = args[r.b],
                                .y = args[r.y],
                                .bias = bias,
                                .scratch = workspace_at(s, scratch) };
    return td_gpu_status(td_gpu()->gemm_run(&g));
}

static void release(td_prepared *p)
{
    gemm_state *s = p->state;
    if (s)
        (void)td_gpu()->gemm_free(&(td_gpu_gemm_free){ s->plan });
    td_free(s);
    p->state = NULL;
}

/* the algorithms that cuBLASLt ranks first to third */
#define ALGORITHMS(op_) TD_GPU_RANKED(cublaslt, op_)

ALGORITHMS(linear)
ALGORITHMS(linear_grad_x)
ALGORITHMS(linear_grad_w)
ALGORITHMS(matmul)
