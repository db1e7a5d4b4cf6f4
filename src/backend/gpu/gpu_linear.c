/*
 * gpu_linear.c -- linear layers, by the plug-in's library (cuBLASLt)
 *
 * Sums are float32.  The library adds biases of its result's dtype only, so a float32 bias of a
 * half problem is rounded to half first.  The scratch memory is
 *
 *     bias in half | as much as the next multiple of TD_GPU_WORKSPACE_ALIGN needs | workspace
 */
#include <stdio.h>

#include "backend/gpu/gpu.h"

/* which operand or result of a node is x, w, y; bias 0: none */
typedef struct {
    td_gpu_direction direction;
    int x, w, y, bias;
} roles;

static roles roles_of(const td_node *n)
{
    if (n->op == &td_op_linear_grad_x)
        return (roles){ .direction = TD_GPU_DATA_GRADIENT, .y = 0, .w = 1, .x = n->n_in };
    if (n->op == &td_op_linear_grad_w)
        return (roles){ .direction = TD_GPU_FILTER_GRADIENT, .y = 0, .x = 1, .w = n->n_in };
    return (roles){
        .direction = TD_GPU_FORWARD, .x = 0, .w = 1, .bias = n->n_in > 2 ? 2 : 0, .y = n->n_in
    };
}

static td_status accepts(const td_node *n)
{
    const td_dtype d = td_in_type(n, 0)->dtype;
    if (d != TD_DT_F32 && !td_dtype_is_half(d))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(d));
    return td_gpu_check_plain(n);
}

typedef struct {
    void *plan;
    size_t bias_bytes;      /* of the bias in half; 0: it is not rounded */
    size_t workspace_bytes; /* of the plan */
} linear_state;

static td_status plan(const td_node *n, const roles *r, int choice, td_gpu_planned *made)
{
    const td_type *x = td_gpu_type(n, r->x), *w = td_gpu_type(n, r->w);
    const td_dtype d = td_in_type(n, 0)->dtype;
    td_status st =
        td_gpu_status(td_gpu()->linear_plan(&(td_gpu_linear_plan){ .direction = r->direction,
                                                                   .dtype = d,
                                                                   .wide = w->dtype != d,
                                                                   .has_bias = r->bias,
                                                                   .allow_tf32 = td_is_tf32(n),
                                                                   .choice = choice,
                                                                   .n = x->dim[0],
                                                                   .c = x->dim[1],
                                                                   .k = w->dim[0],
                                                                   .made = made }));
    return st != TD_OK && choice > 0 ? td_error(TD_ENOKERNEL, "cuBLASLt has no other algorithm")
                                     : st;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const roles r = roles_of(n);
    td_gpu_planned made = { 0 };
    linear_state *s = TD_NEW(linear_state);
    if (!s)
        return TD_ENOMEM;
    td_status st = plan(n, &r, out->kernel->variant, &made);
    if (st != TD_OK) {
        td_free(s);
        return st;
    }
    *s = (linear_state){ .plan = made.plan, .workspace_bytes = made.scratch_bytes };
    if (r.bias && td_is_wide_operand(n, r.bias))
        s->bias_bytes = (size_t)td_type_bytes(td_gpu_type(n, r.bias)) / 2;
    out->state = s;
    out->scratch_bytes = s->bias_bytes;
    if (s->workspace_bytes)
        out->scratch_bytes += TD_GPU_WORKSPACE_ALIGN + s->workspace_bytes;
    (void)snprintf(out->impl, sizeof out->impl, "%s", made.impl);
    return TD_OK;
}

static void *workspace_at(const linear_state *s, void *scratch)
{
    if (!s->workspace_bytes)
        return NULL;
    char *p = (char *)scratch + s->bias_bytes;
    return p + (TD_GPU_WORKSPACE_ALIGN - (uintptr_t)p % TD_GPU_WORKSPACE_ALIGN);
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const linear_state *s = p->state;
    const roles r = roles_of(n);
    void *scratch = args[n->n_in + n->n_out], *bias = r.bias ? args[r.bias] : NULL;
    if (s->bias_bytes) {
        bias = scratch;
        TD_TRY(td_gpu_round_operand(p, r.bias, args, bias));
    }
    return td_gpu_status(
        td_gpu()->linear_run(&(td_gpu_linear_run){ .plan = s->plan,
                                                   .x = args[r.x],
                                                   .w = args[r.w],
                                                   .y = args[r.y],
                                                   .bias = bias,
                                                   .scratch = workspace_at(s, scratch) }));
}

static void release(td_prepared *p)
{
    linear_state *s = p->state;
    if (s)
        (void)td_gpu()->linear_free(&(td_gpu_linear_free){ s->plan });
    td_free(s);
    p->state = NULL;
}

/* the algorithms that cuBLASLt ranks first to third */
#define ALGORITHMS(op_) TD_GPU_RANKED(cublaslt, op_)

ALGORITHMS(linear)
ALGORITHMS(linear_grad_x)
ALGORITHMS(linear_grad_w)
