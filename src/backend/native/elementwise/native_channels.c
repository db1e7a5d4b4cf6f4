/*
 * native_channels.c -- rows of channels: products with a factor for each channel, sums over rows
 *
 *     mul          x [rows, C] times [C]
 *     mul_reduce   the sum of x y over rows, [C]
 *     sum_to       the sum of x over rows, [C]
 *
 * Rows are plain, or the pixels of images with channels last.  Half types are widened in pieces
 * that stay in the first cache.  Sums are float32 within a group of GROUP rows and float64 over the
 * groups, in order, whatever the number of threads:
 *
 *     scratch   [groups][C]
 */
#include "backend/native/elementwise/native_channels.h"

#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/elementwise/native_act.h"
#include "backend/native/simd/native_rows.h"
#include "backend/native/simd/native_simd.h"

#define GROUP       64
#define PIECE       1024        /* elements */
#define ROWS_WANTED (4 * GROUP) /* with fewer rows other kernels are as fast */

typedef struct {
    td_dtype dtype;
    int64_t rows, width, each; /* each: bytes of an element */
    const td_native_simd *simd;
} channels;

/* --- supported nodes -------------------------------------------------------------------------- */

static bool is_last(const td_type *t)
{
    return t->rank == 4 && strcmp(t->layout, TD_CHANNELS_LAST) == 0;
}

/* the dimensions of x from the returned one on have so many elements, or nearly */
static int first_of(const td_type *x, int64_t width)
{
    int64_t last = 1;
    int d = x->rank;
    while (d > 0 && last < width)
        last *= x->dim[--d];
    return d;
}

/* has `like` x's channels in its memory's order, and 1 elsewhere? */
static bool has_channels(const td_type *x, const td_type *like)
{
    const int64_t width = td_type_count(like);
    const int first = is_last(x) ? 1 : first_of(x, width), end = is_last(x) ? 2 : x->rank;
    int64_t count = 1;
    if (like->rank > x->rank || !(td_type_is_plain(like) || is_last(like)))
        return false;
    for (int d = first; d < end; d++)
        count *= x->dim[d];
    for (int k = 0; k < like->rank; k++) {
        const int d = k + x->rank - like->rank;
        if (like->dim[k] != (d >= first && d < end ? x->dim[d] : 1))
            return false;
    }
    return count == width;
}

static td_status channels_of(const td_type *x, const td_type *like, channels *c)
{
    if (!td_native_knows(x->dtype))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(x->dtype));
    if (!td_type_is_plain(x) && !is_last(x))
        return td_error(TD_ENOKERNEL, "neither plain nor channels last");
    if (!has_channels(x, like))
        return td_error(TD_ENOKERNEL, "not a number for each channel");
    *c = (channels){ .dtype = x->dtype,
                     .width = td_type_count(like),
                     .each = (int64_t)td_dtype_bytes(x->dtype),
                     .simd = td_native_simd_for(x->dtype, 16) };
    c->rows = td_type_count(x) / c->width;
    if (c->width < TD_NATIVE_ROW_STEP || c->rows < ROWS_WANTED)
        return td_error(TD_ENOKERNEL, "fewer than %d channels or %d rows", TD_NATIVE_ROW_STEP,
                        ROWS_WANTED);
    return TD_OK;
}

/* --- products --------------------------------------------------------------------------------- */

/* the operand that has a factor for each channel, or -1 */
static int factors_of(const td_node *n, channels *c)
{
    for (int i = 0; i < 2; i++)
        if (td_type_equal(td_in_type(n, 1 - i), &n->out[0]->type) &&
            td_in_type(n, i)->dtype == n->out[0]->type.dtype &&
            channels_of(&n->out[0]->type, td_in_type(n, i), c) == TD_OK)
            return i;
    return -1;
}

static td_status accepts_mul(const td_node *n)
{
    channels c;
    return factors_of(n, &c) < 0 ? td_error(TD_ENOKERNEL, "not a factor for each channel") : TD_OK;
}

/* the factors of `rows` rows from column `from` on, as float32 */
static void repeat_factors(const channels *c, const char *s, int64_t from, int64_t n, int64_t rows,
                           float *out)
{
    if (c->dtype == TD_DT_F32)
        memcpy(out, s + from * c->each, (size_t)n * sizeof *out);
    else
        c->simd->widen(n, s + from * c->each, out, false);
    for (int64_t i = 1; i < rows; i++)
        memcpy(out + i * n, out, (size_t)n * sizeof *out);
}

static void multiply(const channels *c, int64_t n, const char *x, const float *factors, char *y)
{
    const td_native_act_simd *loops = td_native_act_simd_at(0);
    float room[PIECE];
    float *to = c->dtype == TD_DT_F32 ? (float *)(void *)y : room;
    loops->binary[TD_BINARY_mul](n, td_native_floats(c->simd, n, x, room), false, factors, false,
                                 to);
    td_native_put(c->simd, n, to, y);
}

/* rows [row, row + rows) */
static void multiply_rows(const channels *c, int64_t row, int64_t rows, const char *x,
                          const char *s, char *y)
{
    const int64_t n = c->width < PIECE ? c->width : PIECE;
    const int64_t at_once = c->width < PIECE ? PIECE / c->width : 1;
    float factors[PIECE];
    for (int64_t from = 0; from < c->width; from += n) {
        const int64_t some = c->width - from < n ? c->width - from : n;
        repeat_factors(c, s, from, some, at_once, factors);
        for (int64_t i = row; i < row + rows; i += at_once) {
            const int64_t left = row + rows - i, now = left < at_once ? left : at_once;
            const int64_t at = (i * c->width + from) * c->each;
            multiply(c, now * some, x + at, factors, y + at);
        }
    }
}

static td_status run_mul(const td_prepared *p, void *const *args)
{
    channels c;
    const int i = factors_of(p->node, &c);
    TD_CHECK(i >= 0);
#pragma omp parallel for if (c.rows * c.width > TD_NATIVE_PIECE)
    for (int64_t row = 0; row < c.rows; row += GROUP)
        multiply_rows(&c, row, c.rows - row < GROUP ? c.rows - row : GROUP, args[1 - i], args[i],
                      args[2]);
    return TD_OK;
}

/* --- sums ------------------------------------------------------------------------------------- */

static const td_type *like_of(const td_node *n)
{
    return td_in_type(n, n->n_in - 1);
}

static td_status accepts_sum(const td_node *n)
{
    channels c;
    const td_dtype to = n->out[0]->type.dtype;
    TD_TRY(channels_of(td_in_type(n, 0), like_of(n), &c));
    if (n->n_in > 2 && !td_type_equal(td_in_type(n, 0), td_in_type(n, 1)))
        return td_error(TD_ENOKERNEL, "operands 0 and 1 differ in type or layout");
    if (!td_type_is_plain(&n->out[0]->type) && !is_last(&n->out[0]->type))
        return td_error(TD_ENOKERNEL, "the result is in blocks");
    return to == TD_DT_F32 || to == c.dtype ? TD_OK
                                            : td_error(TD_ENOKERNEL, "to %s", td_dtype_name(to));
}

static int64_t groups_of(const channels *c)
{
    return (c->rows + GROUP - 1) / GROUP;
}

static td_status prepare_sum(const td_node *n, td_prepared *out)
{
    channels c;
    TD_TRY(channels_of(td_in_type(n, 0), like_of(n), &c));
    out->scratch_bytes = (size_t)((groups_of(&c) + 1) * c.width) * sizeof(float);
    return TD_OK;
}

/* sum += x, or x y, of n columns of one row */
static void add_row(const channels *c, int64_t n, const char *x, const char *y, float *sum)
{
    float room[2][PIECE];
    const float *row = td_native_floats(c->simd, n, x, room[0]);
    if (y) {
        td_native_act_simd_at(0)->binary[TD_BINARY_mul](
            n, row, false, td_native_floats(c->simd, n, y, room[1]), false, room[0]);
        row = room[0];
    }
    td_native_rows_here()->add_to(n, row, sum);
}

static void add_rows(const channels *c, int64_t row, int64_t end, const char *x, const char *y,
                     float *sum)
{
    memset(sum, 0, (size_t)c->width * sizeof *sum);
    for (int64_t i = row; i < end; i++)
        for (int64_t from = 0; from < c->width; from += PIECE) {
            const int64_t at = (i * c->width + from) * c->each, left = c->width - from;
            add_row(c, left < PIECE ? left : PIECE, x + at, y ? y + at : NULL, sum + from);
        }
}

/* y[k] = the sum over the groups of parts[group][k], parts `step` apart */
void td_native_add_groups(int64_t groups, int64_t step, int64_t width, const float *parts, float *y)
{
#pragma omp parallel for if (groups * width > TD_NATIVE_PIECE)
    for (int64_t from = 0; from < width; from += GROUP) {
        double sum[GROUP] = { 0 };
        const int64_t n = width - from < GROUP ? width - from : GROUP;
        for (int64_t g = 0; g < groups; g++)
            for (int64_t k = 0; k < n; k++)
                sum[k] += (double)parts[g * step + from + k];
        for (int64_t k = 0; k < n; k++)
            y[from + k] = (float)sum[k];
    }
}

static td_status run_sum(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    channels c;
    TD_TRY(channels_of(td_in_type(n, 0), like_of(n), &c));
    const char *x = args[0], *y = n->n_in > 2 ? args[1] : NULL;
    const bool is_half = n->out[0]->type.dtype != TD_DT_F32;
    const int64_t groups = groups_of(&c);
    float *parts = args[n->n_in + 1], *sums = parts + groups * c.width;
#pragma omp parallel for if (c.rows * c.width > TD_NATIVE_PIECE)
    for (int64_t g = 0; g < groups; g++) {
        const int64_t end = (g + 1) * GROUP;
        add_rows(&c, g * GROUP, end < c.rows ? end : c.rows, x, y, parts + g * c.width);
    }
    td_native_add_groups(groups, c.width, c.width, parts, is_half ? sums : args[n->n_in]);
    if (is_half)
        c.simd->narrow(c.width, sums, args[n->n_in], false);
    return TD_OK;
}

/* --- division --------------------------------------------------------------------------------- */

static td_work_share share_of(const channels *c, int threads)
{
    return td_work_share_of(groups_of(c), (double)(GROUP * c->width), threads);
}

static td_work_share share_mul(const td_node *n, int threads)
{
    channels c;
    TD_CHECK(factors_of(n, &c) >= 0);
    return share_of(&c, threads);
}

static td_work_share share_sum(const td_node *n, int threads)
{
    channels c;
    TD_CHECK(channels_of(td_in_type(n, 0), like_of(n), &c) == TD_OK);
    return share_of(&c, threads);
}

#define KERNEL(name_, op_, accepts_, prepare_, run_, share_)                                       \
    const td_kernel td_native_##name_ = { .name = "native_" #name_,                                \
                                          .op = &td_op_##op_,                                      \
                                          .accepts = accepts_,                                     \
                                          .prepare = prepare_,                                     \
                                          .run = run_,                                             \
                                          .share = share_ };

KERNEL(mul_channels, mul, accepts_mul, NULL, run_mul, share_mul)
KERNEL(mul_reduce_channels, mul_reduce, accepts_sum, prepare_sum, run_sum, share_sum)
KERNEL(sum_to, sum_to, accepts_sum, prepare_sum, run_sum, share_sum)
