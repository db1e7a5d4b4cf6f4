/*
 * native_act.c -- activations and their gradients, element by element in any layout
 *
 * Halves are widened and rounded in pieces that stay in the first cache.
 */
#include "backend/native/native_act.h"

#include "backend/native/native.h"
#include "tandem/program.h"

#define PIECE 1024 /* elements */

/* are zeros mapped to zeros, as padding has to be?  ops/act_list.h */
static td_status accepts_unpadded(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    if (td_type_padded_count(x) != td_type_count(x))
        return td_error(TD_ENOKERNEL, "layout %s has padding", x->layout);
    return td_native_accepts_flat(n);
}

/* one call of an inner loop: tensors `in` and, for a gradient, `with`; the result */
typedef struct {
    td_act_attr attr;
    td_dtype dtype;
    int64_t each; /* bytes of an element */
    const char *in, *with;
    char *out;
    void (*function)(int64_t n, const td_act_attr *attr, const float *x, float *y);
    void (*gradient)(int64_t n, const td_act_attr *attr, const float *dy, const float *with,
                     float *dx);
} job;

static void run_floats(const job *j, int64_t n, const float *in, const float *with, float *out)
{
    if (j->gradient)
        j->gradient(n, &j->attr, in, with, out);
    else
        j->function(n, &j->attr, in, out);
}

static void run_halves(const job *j, const td_native_simd *simd, int64_t n, int64_t at)
{
    float in[PIECE], with[PIECE];
    for (int64_t i = at; i < at + n; i += PIECE) {
        const int64_t some = at + n - i < PIECE ? at + n - i : PIECE;
        simd->widen(some, j->in + i * j->each, in, false);
        if (j->with)
            simd->widen(some, j->with + i * j->each, with, false);
        run_floats(j, some, in, with, in);
        simd->narrow(some, in, j->out + i * j->each, false);
    }
}

static td_status run_all(const td_type *t, job *j)
{
    const td_native_simd *simd = td_native_simd_for(t->dtype, 16);
    const td_native_pieces d = td_native_divide_tensor(t, td_threads());
    j->each = (int64_t)td_dtype_bytes(t->dtype);
#pragma omp parallel for if (d.n > 1)
    for (int64_t i = 0; i < d.count; i += d.each) {
        const int64_t n = td_native_piece_at(&d, i);
        if (t->dtype == TD_DT_F32)
            run_floats(j, n, (const float *)j->in + i, j->with ? (const float *)j->with + i : NULL,
                       (float *)j->out + i);
        else
            run_halves(j, simd, n, i);
    }
    return TD_OK;
}

static td_act_attr attr_of(const td_node *n)
{
    return n->attr ? *(const td_act_attr *)n->attr : (td_act_attr){ 0 };
}

static td_status run_function(const td_prepared *p, td_act act, void *const *args)
{
    job j = { .attr = attr_of(p->node),
              .in = args[0],
              .out = args[1],
              .function = td_native_act_simd_at(0)->function[act] };
    return run_all(td_in_type(p->node, 0), &j);
}

static td_status run_gradient(const td_prepared *p, td_act act, void *const *args)
{
    job j = { .attr = attr_of(p->node),
              .in = args[0],
              .with = args[1],
              .out = args[2],
              .gradient = td_native_act_simd_at(0)->gradient[act] };
    return run_all(td_in_type(p->node, 0), &j);
}

/* --- the kernels ------------------------------------------------------------------------------ */

#define ACCEPTS_BOTH      td_native_accepts_flat
#define ACCEPTS_GRAD      accepts_unpadded
#define ACCEPTS_NONE      accepts_unpadded
#define ACCEPTS_GRAD_BOTH td_native_accepts_flat
#define ACCEPTS_GRAD_GRAD td_native_accepts_flat
#define ACCEPTS_GRAD_NONE accepts_unpadded

#define KERNELS(K, id, tf, tf_grad, fields, reads, zero, ...)                                      \
    static td_status run_##id(const td_prepared *p, void *const *args)                             \
    {                                                                                              \
        return run_function(p, TD_ACT_##id, args);                                                 \
    }                                                                                              \
    static td_status run_##id##_grad(const td_prepared *p, void *const *args)                      \
    {                                                                                              \
        return run_gradient(p, TD_ACT_##id, args);                                                 \
    }                                                                                              \
    TD_NATIVE_KERNEL(id, ACCEPTS_##zero, NULL, run_##id, td_native_share_flat);                    \
    TD_NATIVE_KERNEL(id##_grad, ACCEPTS_GRAD_##zero, NULL, run_##id##_grad, td_native_share_flat);

TD_ACT_OTHERS(KERNELS, )
