/*
 * native_act.c -- activations, their gradients, and functions of two tensors, element by element in
 * any layout
 *
 * Halves are widened and rounded in pieces that stay in the first cache; some of bf16
 * have loops of their own (native_act_bf16_simd.c), because their exponentials would take longer
 * than memory.
 */
#include "backend/native/elementwise/native_act.h"

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/common/native_planes.h"
#include "backend/native/elementwise/native_act_bf16.h"
#include "backend/native/simd/native_simd.h"
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

/* one call of an inner loop: tensors `in` and, for a gradient and two operands, `with` */
typedef struct {
    td_act_attr attr;
    td_dtype dtype;
    int64_t each; /* bytes of an element */
    const char *in, *with;
    char *out;
    void (*function)(int64_t n, const td_act_attr *attr, const float *x, float *y);
    void (*gradient)(int64_t n, const td_act_attr *attr, const float *dy, const float *with,
                     float *dx);
    void (*binary)(int64_t n, const float *x, bool x_is_one, const float *z, bool z_is_one,
                   float *y);
    bool in_is_one, with_is_one;     /* one number */
    const float *by;                 /* not NULL: with is this number, whatever the dtype */
    const td_native_act_loops *bf16; /* not NULL: these loops instead */
} job;

static void run_floats(const job *j, int64_t n, const float *in, const float *with, float *out)
{
    if (j->binary)
        j->binary(n, in, j->in_is_one, j->by ? j->by : with, j->by || j->with_is_one, out);
    else if (j->gradient)
        j->gradient(n, &j->attr, in, with, out);
    else
        j->function(n, &j->attr, in, out);
}

static void run_bf16(const job *j, int64_t n, int64_t at)
{
    const uint16_t *in = (const uint16_t *)j->in + at;
    uint16_t *out = (uint16_t *)j->out + at;
    if (j->gradient)
        j->bf16->gradient(n, in, (const uint16_t *)j->with + at, out);
    else
        j->bf16->function(n, in, out);
}

static void run_halves(const job *j, const td_native_simd *simd, int64_t n, int64_t at)
{
    float in[PIECE], with[PIECE];
    for (int64_t i = at; i < at + n; i += PIECE) {
        const int64_t some = at + n - i < PIECE ? at + n - i : PIECE;
        simd->widen(j->in_is_one ? 1 : some, j->in + (j->in_is_one ? 0 : i * j->each), in, false);
        if (j->with)
            simd->widen(j->with_is_one ? 1 : some, j->with + (j->with_is_one ? 0 : i * j->each),
                        with, false);
        run_floats(j, some, in, with, j->in_is_one ? with : in);
        simd->narrow(some, j->in_is_one ? with : in, j->out + i * j->each, false);
    }
}

/* `t`: the type of the result */
static td_status run_all(const td_type *t, job *j)
{
    const td_native_simd *simd = td_native_simd_for(t->dtype, 16);
    const td_native_pieces d = td_native_divide_tensor(t, td_threads());
    j->each = (int64_t)td_dtype_bytes(t->dtype);
#pragma omp parallel for if (d.n > 1)
    for (int64_t i = 0; i < d.count; i += d.each) {
        const int64_t n = td_native_piece_at(&d, i);
        const float *in = (const float *)j->in, *with = (const float *)j->with;
        if (t->dtype == TD_DT_F32)
            run_floats(j, n, j->in_is_one ? in : in + i, j->with_is_one || !with ? with : with + i,
                       (float *)j->out + i);
        else if (j->bf16)
            run_bf16(j, n, i);
        else
            run_halves(j, simd, n, i);
    }
    return TD_OK;
}

static td_act_attr attr_of(const td_node *n)
{
    return n->attr ? *(const td_act_attr *)n->attr : (td_act_attr){ 0 };
}

static const td_native_act_loops *bf16_loops(const td_node *n, td_act act)
{
    return td_in_type(n, 0)->dtype == TD_DT_BF16 ? td_native_act_bf16(act) : NULL;
}

static td_status run_function(const td_prepared *p, td_act act, void *const *args)
{
    job j = { .attr = attr_of(p->node),
              .in = args[0],
              .out = args[1],
              .function = td_native_act_simd_at(0)->function[act],
              .bf16 = bf16_loops(p->node, act) };
    return run_all(td_in_type(p->node, 0), &j);
}

static td_status run_gradient(const td_prepared *p, td_act act, void *const *args)
{
    job j = { .attr = attr_of(p->node),
              .in = args[0],
              .with = args[1],
              .out = args[2],
              .gradient = td_native_act_simd_at(0)->gradient[act],
              .bf16 = bf16_loops(p->node, act) };
    return run_all(td_in_type(p->node, 0), &j);
}

/* --- functions of two tensors ----------------------------------------------------------------- */

static bool is_one(const td_node *n, int i)
{
    return td_type_count(td_in_type(n, i)) == 1 && td_type_count(&n->out[0]->type) != 1;
}

/* operands of the result's type, or one of them is one number; zeros that pad a layout stay zero */
static td_status accepts_two(const td_node *n)
{
    const td_type *y = &n->out[0]->type;
    const bool has_one = is_one(n, 0) || is_one(n, 1);
    if (!td_native_knows(y->dtype))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(y->dtype));
    if ((has_one || n->op == &td_op_div || n->op == &td_op_larger) &&
        td_type_padded_count(y) != td_type_count(y))
        return td_error(TD_ENOKERNEL, "layout %s has padding", y->layout);
    for (int i = 0; i < 2; i++)
        if (!is_one(n, i) && !td_type_equal(td_in_type(n, i), y))
            return td_error(TD_ENOKERNEL, "operand %d is repeated, or has another layout", i);
    return TD_OK;
}

static td_work_share share_two(const td_node *n, int threads)
{
    const td_native_pieces d = td_native_divide_tensor(&n->out[0]->type, threads);
    return td_native_pieces_share(&d, threads);
}

static td_status run_two(const td_prepared *p, td_binary function, void *const *args)
{
    job j = { .in = args[0],
              .with = args[1],
              .out = args[2],
              .binary = td_native_act_simd_at(0)->binary[function],
              .in_is_one = is_one(p->node, 0),
              .with_is_one = is_one(p->node, 1) };
    return run_all(&p->node->out[0]->type, &j);
}

/* scale: x times one number */
static td_status accepts_scale(const td_node *n)
{
    return ((const td_scale_attr *)n->attr)->by < 0 ? accepts_unpadded(n)
                                                    : td_native_accepts_flat(n);
}

static td_status run_scale(const td_prepared *p, void *const *args)
{
    const float by = (float)((const td_scale_attr *)p->node->attr)->by;
    job j = { .in = args[0],
              .out = args[1],
              .binary = td_native_act_simd_at(0)->binary[TD_BINARY_mul],
              .by = &by };
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

#define BINARY_KERNELS(K, id, ...)                                                                 \
    static td_status run_two_##id(const td_prepared *p, void *const *args)                         \
    {                                                                                              \
        return run_two(p, TD_BINARY_##id, args);                                                   \
    }                                                                                              \
    const td_kernel td_native_two_##id = { .name = "native_two_" #id,                              \
                                           .op = &td_op_##id,                                      \
                                           .accepts = accepts_two,                                 \
                                           .run = run_two_##id,                                    \
                                           .share = share_two };

TD_BINARY_LIST(BINARY_KERNELS, )

TD_NATIVE_KERNEL(scale, accepts_scale, NULL, run_scale, td_native_share_flat);
