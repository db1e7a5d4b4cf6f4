/*
 * native_broadcast.c -- sums and products of plain float32 tensors, of which one is repeated, and
 * their gradients
 *
 *     add, mul            rows of the result's last dimensions, in which neither operand repeats,
 *                         or one is a single number
 *     mul_reduce, sum_to  x [outer, kept, inner] -> [kept]: a row of `inner` in float32, rows in
 *                         float64, in order
 *     bias_add_grad       the same for [N, C, H W], also of half types, widened by chunks
 */
#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/simd/native_rows.h"
#include "backend/native/simd/native_simd.h"

/* --- add and mul ------------------------------------------------------------------------------ */

/* the result's dimensions, merged where both operands walk them as one; steps of x and y */
typedef struct {
    int rank;
    int64_t size[TD_RANK_MAX], step[2][TD_RANK_MAX];
} walk;

/* elements from one index of dimension d of a tensor of rank `rank` to the next; 0: repeated */
static int64_t step_of(const td_type *t, int rank, int d)
{
    const int k = d - (rank - t->rank);
    int64_t step = 1;
    if (k < 0 || t->dim[k] == 1)
        return 0;
    for (int i = k + 1; i < t->rank; i++)
        step *= t->dim[i];
    return step;
}

static walk walk_of(const td_node *n)
{
    const td_type *z = &n->out[0]->type;
    walk w = { 0 };
    for (int d = 0; d < z->rank; d++) {
        const int64_t size = z->dim[d];
        const int64_t sx = step_of(td_in_type(n, 0), z->rank, d);
        const int64_t sy = step_of(td_in_type(n, 1), z->rank, d);
        const int last = w.rank - 1;
        if (size == 1)
            continue;
        if (w.rank && w.step[0][last] == sx * size && w.step[1][last] == sy * size)
            w.rank--;
        else
            w.size[w.rank] = 1;
        w.size[w.rank] *= size;
        w.step[0][w.rank] = sx;
        w.step[1][w.rank++] = sy;
    }
    return w;
}

static td_status accepts(const td_node *n)
{
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const td_type *t = i < n->n_in ? td_in_type(n, i) : &n->out[i - n->n_in]->type;
        if (!td_is_shape_only(n, i) && (t->dtype != TD_DT_F32 || !td_type_is_plain(t)))
            return td_error(TD_ENOKERNEL, "not float32 in plain order");
    }
    return TD_OK;
}

static void add_row(int64_t n, const float *x, int64_t sx, const float *y, int64_t sy, float *z)
{
    if (sx && sy)
        for (int64_t i = 0; i < n; i++)
            z[i] = x[i] + y[i];
    else if (sx)
        for (int64_t i = 0; i < n; i++)
            z[i] = x[i] + *y;
    else
        for (int64_t i = 0; i < n; i++)
            z[i] = *x + y[i];
}

static void mul_row(int64_t n, const float *x, int64_t sx, const float *y, int64_t sy, float *z)
{
    if (sx && sy)
        for (int64_t i = 0; i < n; i++)
            z[i] = x[i] * y[i];
    else if (sx)
        for (int64_t i = 0; i < n; i++)
            z[i] = x[i] * *y;
    else
        for (int64_t i = 0; i < n; i++)
            z[i] = *x * y[i];
}

static td_status run(const td_prepared *p, void *const *args)
{
    const walk w = walk_of(p->node);
    const bool is_sum = p->node->op == &td_op_add;
    const int last = w.rank - 1;
    const int64_t n = w.rank ? w.size[last] : 1;
    const int64_t rows = td_type_count(&p->node->out[0]->type) / n;
#pragma omp parallel for if (rows * n > TD_NATIVE_PIECE)
    for (int64_t row = 0; row < rows; row++) {
        const float *x = args[0], *y = args[1];
        float *z = (float *)args[2] + row * n;
        int64_t rest = row;
        for (int d = last - 1; d >= 0; d--) {
            x += rest % w.size[d] * w.step[0][d];
            y += rest % w.size[d] * w.step[1][d];
            rest /= w.size[d];
        }
        (is_sum ? add_row : mul_row)(n, x, w.rank ? w.step[0][last] : 1, y,
                                     w.rank ? w.step[1][last] : 1, z);
    }
    return TD_OK;
}

/* --- sums ------------------------------------------------------------------------------------- */

typedef struct {
    int64_t outer, kept, inner;
} part;

/* x [outer, kept, inner], of which `like` has the middle; TD_ENOKERNEL: it has others */
static td_status part_of(const td_type *x, const td_type *like, part *out)
{
    int d = 0, first = x->rank - like->rank;
    *out = (part){ 1, 1, 1 };
    for (; d < x->rank && (d < first || like->dim[d - first] == 1); d++)
        out->outer *= x->dim[d];
    for (; d < x->rank && like->dim[d - first] == x->dim[d] && x->dim[d] > 1; d++)
        out->kept *= x->dim[d];
    for (; d < x->rank && like->dim[d - first] == 1; d++)
        out->inner *= x->dim[d];
    if (d < x->rank || out->inner < TD_NATIVE_ROW_STEP)
        return td_error(TD_ENOKERNEL, "not a sum of rows");
    return TD_OK;
}

static const td_type *like_of(const td_node *n)
{
    return td_in_type(n, n->n_in - 1);
}

static td_status accepts_reduce(const td_node *n)
{
    part v;
    TD_TRY(accepts(n));
    if (n->n_in == 3 && !td_type_same_shape(td_in_type(n, 0), td_in_type(n, 1)))
        return td_error(TD_ENOKERNEL, "an operand is repeated");
    return part_of(td_in_type(n, 0), like_of(n), &v);
}

static td_status run_reduce(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_native_rows *loops = td_native_rows_here();
    const float *x = args[0], *y = n->n_in == 3 ? args[1] : NULL;
    float *z = args[n->n_in];
    part v;
    TD_TRY(part_of(td_in_type(n, 0), like_of(n), &v));
#pragma omp parallel for if (v.outer * v.kept * v.inner > TD_NATIVE_PIECE)
    for (int64_t k = 0; k < v.kept; k++) {
        double sum = 0;
        for (int64_t i = 0; i < v.outer; i++)
            for (int64_t from = 0; from < v.inner; from += TD_NATIVE_CHUNK) {
                const int64_t at = (i * v.kept + k) * v.inner + from, rest = v.inner - from;
                const int64_t count = rest < TD_NATIVE_CHUNK ? rest : TD_NATIVE_CHUNK;
                sum += (double)(y ? loops->dot(count, x + at, y + at) : loops->sum(count, x + at));
            }
        z[k] = (float)sum;
    }
    return TD_OK;
}

/* --- gradients of biases ---------------------------------------------------------------------- */

static part part_of_bias(const td_type *dy)
{
    return (part){ dy->dim[0], dy->dim[1], dy->dim[2] * dy->dim[3] };
}

static td_status accepts_bias_grad(const td_node *n)
{
    const td_type *dy = td_in_type(n, 0);
    if (!td_native_knows(dy->dtype) || n->out[0]->type.dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(dy->dtype));
    if (!td_type_is_plain(dy) || part_of_bias(dy).inner < TD_NATIVE_ROW_STEP)
        return td_error(TD_ENOKERNEL, "maps are not rows of at least %d", TD_NATIVE_ROW_STEP);
    return TD_OK;
}

static double sum_of_row(td_dtype dtype, int64_t n, const char *x)
{
    const td_native_rows *loops = td_native_rows_here();
    double sum = 0;
    for (int64_t from = 0; from < n; from += TD_NATIVE_CHUNK) {
        float room[TD_NATIVE_CHUNK];
        const int64_t count = n - from < TD_NATIVE_CHUNK ? n - from : TD_NATIVE_CHUNK;
        const char *at = x + (size_t)from * td_dtype_bytes(dtype);
        if (dtype != TD_DT_F32)
            td_native_simd_for(dtype, 16)->widen(count, at, room, false);
        const float *row = dtype == TD_DT_F32 ? (const float *)(const void *)at : room;
        sum += (double)loops->sum(count, row);
    }
    return sum;
}

static td_status run_bias_grad(const td_prepared *p, void *const *args)
{
    const td_type *dy = td_in_type(p->node, 0);
    const part v = part_of_bias(dy);
    const size_t row = (size_t)v.inner * td_dtype_bytes(dy->dtype);
    float *z = args[1];
#pragma omp parallel for if (v.outer * v.kept * v.inner > TD_NATIVE_PIECE)
    for (int64_t k = 0; k < v.kept; k++) {
        double sum = 0;
        for (int64_t i = 0; i < v.outer; i++)
            sum += sum_of_row(dy->dtype, v.inner,
                              (const char *)args[0] + (size_t)(i * v.kept + k) * row);
        z[k] = (float)sum;
    }
    return TD_OK;
}

static td_work_share share_bias_grad(const td_node *n, int threads)
{
    const part v = part_of_bias(td_in_type(n, 0));
    return td_work_share_of(v.kept, (double)(v.outer * v.inner), threads);
}

/* --- division --------------------------------------------------------------------------------- */

static td_work_share share(const td_node *n, int threads)
{
    const walk w = walk_of(n);
    const int64_t width = w.rank ? w.size[w.rank - 1] : 1;
    return td_work_share_of(td_type_count(&n->out[0]->type) / width, (double)width, threads);
}

static td_work_share share_reduce(const td_node *n, int threads)
{
    part v;
    TD_CHECK(part_of(td_in_type(n, 0), like_of(n), &v) == TD_OK);
    return td_work_share_of(v.kept, (double)(v.outer * v.inner), threads);
}

#define KERNEL(name_, op_, accepts_, run_, share_)                                                 \
    const td_kernel td_native_##name_ = { .name = "native_" #name_,                                \
                                          .op = &td_op_##op_,                                      \
                                          .accepts = accepts_,                                     \
                                          .run = run_,                                             \
                                          .share = share_ };

KERNEL(add_repeated, add, accepts, run, share)
KERNEL(mul_repeated, mul, accepts, run, share)
KERNEL(mul_reduce_rows, mul_reduce, accepts_reduce, run_reduce, share_reduce)
KERNEL(sum_to_rows, sum_to, accepts_reduce, run_reduce, share_reduce)
KERNEL(bias_add_grad_rows, bias_add_grad, accepts_bias_grad, run_bias_grad, share_bias_grad)
