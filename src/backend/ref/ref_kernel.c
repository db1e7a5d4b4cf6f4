/*
 * ref_kernel.c -- what all reference kernels share: conversion to double and back, prepare and run
 */
#include "backend/ref/ref.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

#define CHUNK        1024  /* elements converted at once: eight such chunks fit into an L1 cache */
#define SMALL        16384 /* with fewer elements a second thread costs more than it saves */
#define MAX_TENSORS  (TD_IN_MAX + TD_OUT_MAX)
#define EACH_TENSORS 11 /* limit for element-wise ops: adam has eleven */

/* --- conversion ------------------------------------------------------------------------------- */

/* x if it is a float, otherwise the neighbouring float whose last bit is 1: rounding the result to
   fewer bits gives the same as rounding x once */
static float round_to_odd(double x)
{
    float f = (float)x;
    if ((double)f == x || x != x || isinf(f))
        return f;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (!(bits & 1))
        f = nextafterf(f, (double)f < x ? INFINITY : -INFINITY);
    return f;
}

static int64_t saturate(double x, double lo, double hi, int64_t min, int64_t max)
{
    if (x != x)
        return 0;
    return x <= lo ? min : x >= hi ? max : (int64_t)x;
}

void td_ref_load(td_dtype d, const void *src, int64_t n, double *dst)
{
#define LOAD(name, T, expr)                                                                        \
    case TD_DT_##name:                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const T v = ((const T *)src)[i];                                                       \
            dst[i] = (double)(expr);                                                               \
        }                                                                                          \
        break;

    switch (d) {
        LOAD(F32, float, v)
        LOAD(F64, double, v)
        LOAD(BF16, uint16_t, td_bf16_to_f32(v))
        LOAD(F16, uint16_t, td_f16_to_f32(v))
        LOAD(I64, int64_t, v)
        LOAD(I32, int32_t, v)
        LOAD(U8, uint8_t, v)
        LOAD(S8, int8_t, v)
    default:
        TD_CHECK(false && "no such dtype");
    }
#undef LOAD
}

void td_ref_store(td_dtype d, const double *src, int64_t n, void *dst)
{
#define STORE(name, T, expr)                                                                       \
    case TD_DT_##name:                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const double v = src[i];                                                               \
            ((T *)dst)[i] = (T)(expr);                                                             \
        }                                                                                          \
        break;

    switch (d) {
        STORE(F32, float, v)
        STORE(F64, double, v)
        STORE(BF16, uint16_t, td_f32_to_bf16(round_to_odd(v)))
        STORE(F16, uint16_t, td_f32_to_f16(round_to_odd(v)))
        STORE(I64, int64_t, saturate(v, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX))
        STORE(I32, int32_t, saturate(v, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX))
        STORE(U8, uint8_t, saturate(v, 0, UINT8_MAX, 0, UINT8_MAX))
        STORE(S8, int8_t, saturate(v, INT8_MIN, INT8_MAX, INT8_MIN, INT8_MAX))
    default:
        TD_CHECK(false && "no such dtype");
    }
#undef STORE
}

/* with fewer elements, waking another thread costs more than it saves */
#define WORTH_SHARING (16 * CHUNK)

static void load_all(td_dtype d, const void *src, int64_t n, double *dst)
{
    const int64_t each = (int64_t)td_dtype_bytes(d);
#pragma omp parallel for if (n > SMALL)
    for (int64_t i = 0; i < n; i += CHUNK)
        td_ref_load(d, (const char *)src + i * each, n - i < CHUNK ? n - i : CHUNK, dst + i);
}

static void store_all(td_dtype d, const double *src, int64_t n, void *dst)
{
    const int64_t each = (int64_t)td_dtype_bytes(d);
#pragma omp parallel for if (n > SMALL)
    for (int64_t i = 0; i < n; i += CHUNK)
        td_ref_store(d, src + i, n - i < CHUNK ? n - i : CHUNK, (char *)dst + i * each);
}

/* --- whole tensors ---------------------------------------------------------------------------- */

const td_type *td_ref_type(const td_node *n, int i)
{
    return i < n->n_in ? &n->in[i]->type : &n->out[i - n->n_in]->type;
}

static bool is_written(const td_node *n, int i)
{
    return i >= n->n_in || (n->op->writes >> i & 1);
}

static bool is_converted(const td_node *n, int i)
{
    td_dtype d = td_ref_type(n, i)->dtype;
    return td_dtype_is_float(d) && d != TD_DT_F64 && !td_is_shape_only(n, i);
}

/* the size of tensor i's part of the work area, in doubles */
static int64_t converted_count(const td_node *n, int i)
{
    return is_converted(n, i) ? (td_type_count(td_ref_type(n, i)) + 7) / 8 * 8 : 0;
}

td_status td_ref_check_plain(const td_node *n)
{
    for (int i = 0; i < n->n_in + n->n_out; i++)
        if (!td_type_is_plain(td_ref_type(n, i)) && !td_is_shape_only(n, i))
            return td_error(TD_ENOKERNEL, "%s %d has layout %s, wanted plain order",
                            i < n->n_in ? "operand" : "result", i < n->n_in ? i : i - n->n_in,
                            td_ref_type(n, i)->layout);
    return TD_OK;
}

td_status td_ref_accepts(const td_node *n)
{
    return td_ref_check_plain(n);
}

td_status td_ref_prepare(const td_node *n, td_prepared *out)
{
    const td_ref_kernel *k = (const td_ref_kernel *)out->kernel;
    int64_t doubles = k->work ? k->work(n) : 0;
    for (int i = 0; i < n->n_in + n->n_out; i++)
        doubles += converted_count(n, i);
    out->scratch_bytes = (size_t)doubles * sizeof(double);
    return TD_OK;
}

td_status td_ref_run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const int n_tensors = n->n_in + n->n_out;
    void *a[MAX_TENSORS + 1];
    double *work = args[n_tensors];

    for (int i = 0; i < n_tensors; i++) {
        a[i] = td_is_shape_only(n, i) ? NULL : args[i];
        if (!is_converted(n, i))
            continue;
        a[i] = work;
        work += converted_count(n, i);
        if (i < n->n_in)
            load_all(td_ref_type(n, i)->dtype, args[i], td_type_count(td_ref_type(n, i)), a[i]);
    }
    a[n_tensors] = work;

    ((const td_ref_kernel *)p->kernel)->body(n, a);

    for (int i = 0; i < n_tensors; i++)
        if (is_converted(n, i) && is_written(n, i))
            store_all(td_ref_type(n, i)->dtype, a[i], td_type_count(td_ref_type(n, i)), args[i]);
    return TD_OK;
}

/* --- element by element ----------------------------------------------------------------------- */

static bool is_padded(const td_type *t)
{
    return td_type_padded_count(t) != td_type_count(t);
}

/* the tensor whose shape and layout the others must have: the first result, or operand 0 */
static const td_type *leading_type(const td_node *n)
{
    return td_ref_type(n, n->n_out ? n->n_in : 0);
}

/* a step's rate with the momentum beside it, which every element reads as it is */
static bool is_rate(const td_node *n, int i)
{
    return i == 3 && td_op_is_update(n->op) && td_update_has_momentum(n);
}

td_status td_ref_accepts_each(const td_node *n)
{
    const td_type *lead = leading_type(n);
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const td_type *t = td_ref_type(n, i);
        if (is_rate(n, i))
            continue;
        if (i < n->n_in && td_type_count(t) == 1 && !td_type_same_shape(t, lead)) {
            if (n->n_out && is_padded(lead))
                return td_error(TD_ENOKERNEL, "layout %s has padding, which must stay zero",
                                lead->layout);
            continue;
        }
        if (!td_type_same_shape(t, lead))
            return td_error(TD_ENOKERNEL, "the shapes differ");
        if (strcmp(t->layout, lead->layout) != 0)
            return td_error(TD_ENOKERNEL, "the layouts differ");
    }
    return TD_OK;
}

typedef struct {
    int n_tensors;
    td_dtype dtype[MAX_TENSORS];
    int64_t each_bytes[MAX_TENSORS]; /* 0 for a single element, repeated, and for: */
    bool is_rate[MAX_TENSORS];
    bool is_in[MAX_TENSORS], is_out[MAX_TENSORS];
} chunk_plan;

static chunk_plan plan_chunks(const td_node *n)
{
    chunk_plan plan = { .n_tensors = n->n_in + n->n_out };
    TD_CHECK(plan.n_tensors <= EACH_TENSORS);
    for (int i = 0; i < plan.n_tensors; i++) {
        const td_type *t = td_ref_type(n, i);
        plan.dtype[i] = t->dtype;
        plan.is_in[i] = i < n->n_in;
        plan.is_out[i] = is_written(n, i);
        plan.is_rate[i] = is_rate(n, i);
        plan.each_bytes[i] = td_type_same_shape(t, leading_type(n)) && !plan.is_rate[i]
                                 ? (int64_t)td_dtype_bytes(t->dtype)
                                 : 0;
    }
    return plan;
}

static void run_chunk(const td_prepared *p, const chunk_plan *plan, void *const *args, int64_t from,
                      int64_t count)
{
    double buf[EACH_TENSORS][CHUNK];
    double *a[EACH_TENSORS];
    for (int i = 0; i < plan->n_tensors; i++) {
        a[i] = buf[i];
        const int64_t own = plan->is_rate[i] ? 2 : 1;
        if (plan->is_in[i])
            td_ref_load(plan->dtype[i], (char *)args[i] + from * plan->each_bytes[i],
                        plan->each_bytes[i] ? count : own, a[i]);
        for (int64_t j = own; plan->each_bytes[i] == 0 && j < count; j++)
            a[i][j] = a[i][0];
    }
    ((const td_ref_kernel *)p->kernel)->each(p->node, count, a);
    for (int i = 0; i < plan->n_tensors; i++)
        if (plan->is_out[i])
            td_ref_store(plan->dtype[i], a[i], count, (char *)args[i] + from * plan->each_bytes[i]);
}

td_status td_ref_run_each(const td_prepared *p, void *const *args)
{
    const chunk_plan plan = plan_chunks(p->node);
    const int64_t count = td_type_padded_count(leading_type(p->node));
#pragma omp parallel for if (count > SMALL)
    for (int64_t i = 0; i < count; i += CHUNK)
        run_chunk(p, &plan, args, i, count - i < CHUNK ? count - i : CHUNK);
    return TD_OK;
}
