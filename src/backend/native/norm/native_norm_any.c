/*
 * native_norm_any.c -- batch normalisation of maps that fill no vector lanes
 *
 * native_norm.c wants channels or planes in multiples of 8.  These kernels take the rest: plain
 * planes of any size (14x14, 7x7) and channels last of any number, in pieces of consecutive
 * elements, whose coefficients are laid out element by element:
 *
 *     plain            [ plane 0 | plane 1 | ...]   coefficients change from plane to plane
 *     channels last    [ row 0 | row 1 | ...]       a row is a pixel's channels; coefficients
 *                                                   repeat, so a piece may begin anywhere in one
 *
 * Sums are float32 within a plane's piece, or within GROUP_ROWS wide rows, and float64 over these.
 * A wide row is some rows whose elements are a multiple of 16: sums are vectors of its columns, and
 * the columns of a channel are joined last.  Work is divided between units (whole planes, or groups
 * of wide rows) that begin at a multiple of 8 elements, a byte of the mask: the bits do not depend
 * on the number of threads.
 */
#include <math.h>
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/common/native_planes.h"
#include "backend/native/norm/native_norm_args.h"
#include "backend/native/simd/native_rows.h"
#include "backend/native/simd/native_simd.h"
#include "tandem/program.h"

#define PIECE      512  /* elements, a multiple of 8 */
#define UNIT       4096 /* elements of a unit of planes, at least */
#define WIDE       256  /* elements of a wide row, at least */
#define GROUP_ROWS 32   /* wide rows */
#define PIVOT_ROWS 4    /* wide rows whose mean is subtracted from a group's elements */

typedef struct {
    td_dtype dtype;
    int64_t each; /* bytes of an element */
    int64_t N, C, area, count;
    bool is_last; /* channels last, not plain */
    int64_t wide; /* elements of a wide row, if channels are last */
    int64_t unit; /* elements of a unit */
} maps;

/* element by element, for a piece or for all channels */
enum { MEAN, SCALE, SHIFT, SLOPE, N_COEFS };

typedef struct {
    maps s;
    const td_native_rows *rows;
    const td_native_simd *simd; /* to and from half types */
    td_native_norm_args a;
    int threads;

    /* scratch */
    double *sums;  /* plain: [planes][2]; channels last: [groups][2][wide row] */
    double *total; /* channels last: [2][C]: mean and m2, or sum and dot */
    float *coefs;  /* [N_COEFS][coefs_of] */
    float *room;   /* channels last: [threads][3][wide row] */
} job;

/* --- shapes ----------------------------------------------------------------------------------- */

static int64_t wide_of(const maps *s)
{
    int64_t rows = 1;
    while (rows * s->C < WIDE || rows * s->C % 16)
        rows *= 2;
    return rows * s->C;
}

static int64_t unit_of_planes(const maps *s)
{
    int64_t planes = 1;
    while (planes * s->area < UNIT || planes * s->area % 8)
        planes *= 2;
    return planes * s->area;
}

static td_status maps_of(const td_type *t, maps *s)
{
    const bool is_last = t->rank == 4 && strcmp(t->layout, TD_CHANNELS_LAST) == 0;
    if (!td_native_knows(t->dtype) || t->rank != 4 || (!is_last && !td_type_is_plain(t)))
        return td_error(TD_ENOKERNEL, "neither plain maps nor channels last, or %s",
                        td_dtype_name(t->dtype));
    *s = (maps){ .dtype = t->dtype,
                 .each = (int64_t)td_dtype_bytes(t->dtype),
                 .N = t->dim[0],
                 .C = t->dim[1],
                 .area = t->dim[2] * t->dim[3],
                 .count = td_type_count(t),
                 .is_last = is_last };
    s->wide = is_last ? wide_of(s) : 0;
    s->unit = is_last ? GROUP_ROWS * s->wide : unit_of_planes(s);
    return TD_OK;
}

static int64_t units_of(const maps *s)
{
    return divide_up(s->count, s->unit);
}

/* pieces, if nothing is summed */
static int64_t pieces_of(const maps *s)
{
    return divide_up(s->count, PIECE);
}

/* the distance of kinds of coefficients: those of channels last repeat, for pieces that begin at
   any channel */
static int64_t coefs_of(const maps *s)
{
    return s->is_last ? s->C + PIECE : s->C;
}

static size_t sums_bytes(const maps *s)
{
    const int64_t n = s->is_last ? units_of(s) * s->wide + s->C : s->N * s->C;
    return (size_t)(2 * n) * sizeof(double);
}

static size_t coefs_bytes(const maps *s)
{
    return (size_t)(N_COEFS * coefs_of(s)) * sizeof(float);
}

static size_t room_bytes(const maps *s)
{
    return s->is_last ? (size_t)(3 * s->wide) * sizeof(float) : 0;
}

static job job_of(const td_prepared *p, void *scratch, bool has_sums)
{
    const td_node *n = p->node;
    job j = { .rows = td_native_rows_here() };
    TD_CHECK(maps_of(td_in_type(n, 0), &j.s) == TD_OK);
    j.simd = td_native_simd_for(j.s.dtype, 16);
    j.threads = td_threads();
    const size_t sums = has_sums ? sums_bytes(&j.s) : 0;
    j.sums = scratch;
    j.total = j.sums + 2 * units_of(&j.s) * j.s.wide;
    j.coefs = (float *)(void *)((char *)scratch + sums);
    j.room = j.coefs + N_COEFS * coefs_of(&j.s);
    if (has_sums && j.s.is_last) {
        const size_t rooms = (p->scratch_bytes - sums - coefs_bytes(&j.s)) / room_bytes(&j.s);
        j.threads = (int)smaller(j.threads, (int64_t)rooms);
    }
    return j;
}

/* --- elements --------------------------------------------------------------------------------- */

/* n elements of `tensor` from `at` on, in place or in `room` */
static const float *floats(const job *j, const void *tensor, int64_t at, int64_t n, float *room)
{
    return td_native_floats(j->simd, n, (const char *)tensor + at * j->s.each, room);
}

/* where n elements of a result are computed: in place or in `room`, from which `put` takes them */
static float *place(const job *j, void *tensor, int64_t at, float *room)
{
    return j->s.dtype == TD_DT_F32 ? (float *)tensor + at : room;
}

static void put(const job *j, int64_t n, const float *x, void *tensor, int64_t at)
{
    td_native_put(j->simd, n, x, (char *)tensor + at * j->s.each);
}

typedef struct {
    float x[PIECE], dy[PIECE], dy2[PIECE], y[PIECE];
} rooms;

/* The gradient g of n elements: dy (+ dy2) where the mask is set; with dy2, dz gets it too. */
static const float *gradient(const job *j, int64_t at, int64_t n, rooms *r)
{
    const float *dy = floats(j, j->a.dy, at, n, r->dy);
    if (!j->a.mask_in)
        return dy;
    const float *dy2 = j->a.dy2 ? floats(j, j->a.dy2, at, n, r->dy2) : NULL;
    j->rows->masked(n, dy, dy2, j->a.mask_in + at / 8, r->dy);
    if (dy2)
        put(j, n, r->dy, j->a.dz, at);
    return r->dy;
}

/* --- sums ------------------------------------------------------------------------------------- */

/* elements [i, i + n) of a piece, which follow `before` others of the same plane */
static void add_run(const job *j, const float *x, const float *g, int64_t n, int64_t plane,
                    int64_t before)
{
    double *s = j->sums + 2 * plane, mean, m2;
    if (before == 0)
        s[0] = s[1] = 0;
    if (g) {
        j->rows->products(n, g, x, j->a.mean_in[plane % j->s.C], &s[0], &s[1]);
    } else {
        j->rows->stats(n, x, &mean, &m2);
        td_native_norm_join(&s[0], &s[1], (double)before, mean, m2, (double)n);
    }
}

static void sum_planes(const job *j, int64_t from, int64_t to)
{
    const int64_t area = j->s.area;
    rooms r;
    for (int64_t at = from; at < to; at += PIECE) {
        const int64_t n = smaller(to - at, PIECE);
        const float *g = j->a.dy ? gradient(j, at, n, &r) : NULL;
        const float *x = floats(j, j->a.x, at, n, r.x);
        for (int64_t i = 0, run; i < n; i += run) {
            const int64_t plane = (at + i) / area, before = (at + i) % area;
            run = smaller(n - i, area - before);
            add_run(j, x + i, g ? g + i : NULL, run, plane, before);
        }
    }
}

/* the mean of the first wide rows, of which there are `elements` elements */
static void pivot_of(const job *j, int64_t at, int64_t elements, float *pivot)
{
    const int64_t wide = j->s.wide, rows = smaller(elements / wide, PIVOT_ROWS);
    float room[PIECE];
    memset(pivot, 0, (size_t)wide * sizeof *pivot);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < wide; i += PIECE) {
            const int64_t n = smaller(wide - i, PIECE);
            j->rows->add_to(n, floats(j, j->a.x, at + row * wide + i, n, room), pivot + i);
        }
    for (int64_t i = 0; rows && i < wide; i++)
        pivot[i] /= (float)rows;
}

/* elements of column i among the first `elements` of wide rows */
static int64_t in_column(int64_t elements, int64_t i, int64_t wide)
{
    return (elements - i + wide - 1) / wide;
}

/* the sums of a group of wide rows, as float64 */
static void put_sums(const job *j, int64_t elements, const float *pivot, const float *sum,
                     const float *other, double *to)
{
    const int64_t wide = j->s.wide;
    for (int64_t i = 0; i < wide; i++) {
        const double n = (double)in_column(elements, i, wide);
        const double gap = pivot && n > 0 ? (double)sum[i] / n : 0;
        const double m2 = (double)other[i] - gap * gap * n;
        to[i] = pivot ? (double)pivot[i] + gap : (double)sum[i];
        to[wide + i] = !pivot ? (double)other[i] : m2 > 0 || m2 != m2 ? m2 : 0;
    }
}

static void sum_rows(const job *j, int64_t from, int64_t to, int t)
{
    const int64_t wide = j->s.wide, C = j->s.C;
    float *sum = j->room + 3 * t * wide, *other = sum + wide, *pivot = other + wide;
    rooms r;
    memset(sum, 0, (size_t)(2 * wide) * sizeof *sum);
    if (!j->a.dy)
        pivot_of(j, from, to - from, pivot);
    for (int64_t i = 0; j->a.dy && i < wide; i++)
        pivot[i] = j->a.mean_in[i % C];
    for (int64_t at = from, n; at < to; at += n) {
        const int64_t i = (at - from) % wide;
        n = smaller(smaller(to - at, wide - i), PIECE);
        const float *g = j->a.dy ? gradient(j, at, n, &r) : NULL;
        const float *x = floats(j, j->a.x, at, n, r.x);
        if (g)
            j->rows->add_products(n, g, x, pivot + i, sum + i, other + i);
        else
            j->rows->add_centred(n, x, pivot + i, sum + i, other + i);
    }
    put_sums(j, to - from, j->a.dy ? NULL : pivot, sum, other,
             j->sums + 2 * wide * (from / j->s.unit));
}

static void sum_units(const job *j, int t)
{
    const int64_t n = units_of(&j->s), each = j->s.unit;
    for (int64_t u = n * t / j->threads; u < n * (t + 1) / j->threads; u++) {
        const int64_t from = u * each, to = smaller(from + each, j->s.count);
        if (j->s.is_last)
            sum_rows(j, from, to, t);
        else
            sum_planes(j, from, to);
    }
}

/* --- channels --------------------------------------------------------------------------------- */

/* joins the sums of channel c over the images: mean and m2, or sum and dot */
static void join_planes(const job *j, int64_t c, double *a, double *b)
{
    *a = *b = 0;
    for (int64_t n = 0; n < j->s.N; n++) {
        const double *s = j->sums + 2 * (n * j->s.C + c);
        if (j->a.dy) {
            *a += s[0];
            *b += s[1];
        } else {
            td_native_norm_join(a, b, (double)(n * j->s.area), s[0], s[1], (double)j->s.area);
        }
    }
}

/* the same of columns of channels [from, to), into j->total; all columns have their elements from
   all groups before the next column's are joined */
static void join_columns(const job *j, int64_t from, int64_t to)
{
    const int64_t C = j->s.C, wide = j->s.wide, each = j->s.unit;
    double before = 0;
    memset(j->total + from, 0, (size_t)(to - from) * sizeof(double));
    memset(j->total + C + from, 0, (size_t)(to - from) * sizeof(double));
    for (int64_t at = 0; at < j->s.count; at += each) {
        const double *sums = j->sums + 2 * wide * (at / each);
        const int64_t elements = smaller(each, j->s.count - at);
        /* rows are whole, so a row's columns have the same number of elements */
        for (int64_t row = 0; row < wide; row += C) {
            const double now = (double)in_column(elements, row, wide);
            for (int64_t c = from; now > 0 && c < to; c++) {
                double *a = j->total + c, *b = a + C;
                if (j->a.dy) {
                    *a += sums[row + c];
                    *b += sums[wide + row + c];
                } else {
                    td_native_norm_join(a, b, before, sums[row + c], sums[wide + row + c], now);
                }
            }
            before += now > 0 ? now : 0;
        }
    }
}

static void put_coefs(const job *j, int64_t c, td_native_norm_channel k)
{
    const int64_t step = coefs_of(&j->s);
    for (int64_t at = c; at < step; at += j->s.C) {
        j->coefs[MEAN * step + at] = k.mean;
        j->coefs[SCALE * step + at] = k.scale;
        j->coefs[SHIFT * step + at] = k.shift;
        j->coefs[SLOPE * step + at] = k.slope;
    }
}

static void join_channels(const job *j, int t)
{
    const int64_t from = j->s.C * t / j->threads, to = j->s.C * (t + 1) / j->threads;
    const double total = (double)(j->s.N * j->s.area);
    if (j->s.is_last)
        join_columns(j, from, to);
    for (int64_t c = from; c < to; c++) {
        double a, b;
        if (j->s.is_last) {
            a = j->total[c];
            b = j->total[j->s.C + c];
        } else {
            join_planes(j, c, &a, &b);
        }
        put_coefs(j, c,
                  j->a.dy ? td_native_norm_end_backward(&j->a, c, a, b, total)
                          : td_native_norm_end_forward(&j->a, c, a, b, total));
    }
}

/* --- applying --------------------------------------------------------------------------------- */

/* the coefficients of a plain piece, and the plane that all of it is in, or -1 */
#define FILLED (PIECE + TD_NATIVE_ROW_STEP)
typedef struct {
    float of[N_COEFS][FILLED];
    int64_t plane;
} filled;

static void fill(const job *j, int64_t at, int64_t n, filled *f)
{
    const int64_t area = j->s.area, first = at / area;
    const int n_coefs = j->a.dy ? N_COEFS : SLOPE;
    if (f->plane == first && (at + n - 1) / area == first)
        return;
    for (int64_t i = 0, run; i < n; i += run) {
        const int64_t plane = (at + i) / area;
        run = smaller(n - i, (plane + 1) * area - (at + i));
        for (int k = 0; k < n_coefs; k++)
            j->rows->repeat(run, j->coefs[k * j->s.C + plane % j->s.C], &f->of[k][i]);
        f->plane = run == PIECE ? plane : -1;
    }
}

static td_native_norm_row row_at(const job *j, int64_t at, int64_t n, filled *f)
{
    const float *from = &f->of[0][0];
    int64_t step = FILLED;
    if (j->s.is_last) {
        from = j->coefs + at % j->s.C;
        step = coefs_of(&j->s);
    } else {
        fill(j, at, n, f);
    }
    return (td_native_norm_row){ from + MEAN * step, from + SCALE * step, from + SHIFT * step,
                                 from + SLOPE * step };
}

static void apply_forward(const job *j, int64_t at, int64_t n, const td_native_norm_row *c,
                          rooms *r)
{
    float *y = place(j, j->a.y, at, r->y);
    j->rows->batch_norm(n, c, floats(j, j->a.x, at, n, r->x),
                        j->a.z ? floats(j, j->a.z, at, n, r->dy) : NULL, y, j->a.cap,
                        j->a.mask ? j->a.mask + at / 8 : NULL);
    put(j, n, y, j->a.y, at);
}

static void apply_backward(const job *j, int64_t at, int64_t n, const td_native_norm_row *c,
                           rooms *r)
{
    const float *g = gradient(j, at, n, r), *x = floats(j, j->a.x, at, n, r->x);
    float *dx = place(j, j->a.dx, at, r->y);
    if (j->a.dz && j->a.mask_in)
        put(j, n, g, j->a.dz, at);
    j->rows->batch_norm_grad(n, c, g, x, dx);
    put(j, n, dx, j->a.dx, at);
}

static void apply_pieces(const job *j, int t)
{
    const int64_t n = pieces_of(&j->s);
    filled f = { .plane = -1 };
    rooms r;
    for (int64_t k = n * t / j->threads; k < n * (t + 1) / j->threads; k++) {
        const int64_t at = k * PIECE, some = smaller(PIECE, j->s.count - at);
        const td_native_norm_row c = row_at(j, at, some, &f);
        if (j->a.dy)
            apply_backward(j, at, some, &c, &r);
        else
            apply_forward(j, at, some, &c, &r);
    }
}

static void run_phases(const job *j)
{
    job after = *j;
    if (j->a.dy2) { /* dz is the masked sum now */
        after.a.dy = j->a.dz;
        after.a.dy2 = NULL;
        after.a.mask_in = NULL;
    }
#pragma omp parallel
    {
#pragma omp for schedule(static, 1)
        for (int t = 0; t < j->threads; t++)
            sum_units(j, t);
#pragma omp for schedule(static, 1)
        for (int t = 0; t < j->threads; t++)
            join_channels(j, t);
#pragma omp for schedule(static, 1)
        for (int t = 0; t < j->threads; t++)
            apply_pieces(&after, t);
    }
}

/* --- kernels ---------------------------------------------------------------------------------- */

static td_status run_forward(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    job j = job_of(p, args[n->n_in + n->n_out], true);
    j.a = td_native_norm_forward(n, args);
    run_phases(&j);
    return TD_OK;
}

static td_status run_infer(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    job j = job_of(p, args[n->n_in + n->n_out], false);
    j.a = td_native_norm_infer(n, args);
#pragma omp parallel
    {
#pragma omp for
        for (int64_t c = 0; c < j.s.C; c++)
            put_coefs(&j, c, td_native_norm_given(&j.a, c, j.a.mean_in[c], j.a.var_in[c]));
#pragma omp for schedule(static, 1)
        for (int t = 0; t < j.threads; t++)
            apply_pieces(&j, t);
    }
    return TD_OK;
}

static td_status run_backward(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    job j = job_of(p, args[n->n_in + n->n_out], true);
    j.a = td_native_norm_backward(n, args);
    run_phases(&j);
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    maps s;
    TD_TRY(maps_of(td_in_type(n, 0), &s));
    return td_native_check_alike(n, td_in_type(n, 0));
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    maps s;
    TD_TRY(maps_of(td_in_type(n, 0), &s));
    out->scratch_bytes = sums_bytes(&s) + coefs_bytes(&s) + (size_t)td_threads() * room_bytes(&s);
    return TD_OK;
}

static td_status prepare_infer(const td_node *n, td_prepared *out)
{
    maps s;
    TD_TRY(maps_of(td_in_type(n, 0), &s));
    out->scratch_bytes = coefs_bytes(&s);
    return TD_OK;
}

static td_work_share share_infer(const td_node *n, int threads)
{
    maps s;
    TD_CHECK(maps_of(td_in_type(n, 0), &s) == TD_OK);
    return td_work_share_of(pieces_of(&s), PIECE, threads);
}

static td_work_share share(const td_node *n, int threads)
{
    maps s;
    TD_CHECK(maps_of(td_in_type(n, 0), &s) == TD_OK);
    const td_work_share sums = td_work_share_of(units_of(&s), (double)s.unit, threads);
    const td_work_share pieces = share_infer(n, threads);
    return (td_work_share){ sums.largest + pieces.largest, sums.mean + pieces.mean };
}

#define KERNEL(op_, prepare_, run_, share_)                                                        \
    const td_kernel td_native_##op_##_any = { .name = "native_" #op_ "_any",                       \
                                              .op = &td_op_##op_,                                  \
                                              .accepts = accepts,                                  \
                                              .prepare = prepare_,                                 \
                                              .run = run_,                                         \
                                              .share = share_ }

KERNEL(batch_norm, prepare, run_forward, share);
KERNEL(batch_norm_relu, prepare, run_forward, share);
KERNEL(batch_norm_add_relu, prepare, run_forward, share);
KERNEL(batch_norm_grad, prepare, run_backward, share);
KERNEL(batch_norm_relu_grad, prepare, run_backward, share);
KERNEL(batch_norm_add_relu_grad, prepare, run_backward, share);
KERNEL(batch_norm_infer, prepare_infer, run_infer, share_infer);
KERNEL(batch_norm_relu_infer, prepare_infer, run_infer, share_infer);
KERNEL(batch_norm_add_relu_infer, prepare_infer, run_infer, share_infer);
