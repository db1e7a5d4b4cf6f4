/*
 * native_stem.c -- the first convolution of MobileNet, EfficientNet and the like, in inference: 3 x
 * 3 with stride 2 from images in plain order to channels last
 *
 * oneDNN's needs the images with channels last, too, and writing them so takes half as long as the
 * convolution itself.  native_stem.h has the layouts.  Rows of the result are taken in turn by the
 * threads; results have the same bits with any number of them.
 */
#include "backend/native/inverted_residual/native_stem.h"

#include <string.h>

#include "backend/native/common/native_kernel.h"
#include "tandem/program.h"

enum { ROWS = 8 /* taken at a time */, VECTOR = 16 /* channels of a packed filter's blocks */ };

static const td_node_layouts layouts = { .in = { "", "Abcd8a", "" }, .out = "acdb" };

static bool has_loops(td_dtype dtype)
{
    return dtype == TD_DT_F32    ? td_stem_loops_at(0) != NULL
           : dtype == TD_DT_BF16 ? td_stem_loops_for_bf16() != NULL
                                 : false;
}

/* checks everything except layouts */
static td_status shape_of(const td_node *n, td_stem *v)
{
    if (n->op != &td_op_conv2d_fused || n->n_in != 3)
        return td_error(TD_ENOKERNEL, "not a convolution with a bias");
    const td_conv_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0), *w = td_in_type(n, 1), *y = &n->out[0]->type;
    if (a->groups != 1 || a->dilation != 1 || a->stride != 2 || a->pad > 1 || a->tf32 ||
        w->dim[2] != 3 || w->dim[3] != 3)
        return td_error(TD_ENOKERNEL, "not 3 x 3 with stride 2");
    if (x->dim[1] > TD_STEM_CHANNELS_MAX || w->dim[0] % TD_STEM_LANES)
        return td_error(TD_ENOKERNEL, "%lld channels to %lld", (long long)x->dim[1],
                        (long long)w->dim[0]);
    if (td_in_type(n, 2)->dtype != TD_DT_F32 || !has_loops(x->dtype))
        return td_error(TD_ENOKERNEL, "no loops in %s for this machine", td_dtype_name(x->dtype));
    *v = (td_stem){ .N = x->dim[0],
                    .C = x->dim[1],
                    .H = x->dim[2],
                    .W = x->dim[3],
                    .K = w->dim[0],
                    .P = y->dim[2],
                    .Q = y->dim[3],
                    .pad = a->pad,
                    .act = td_block_act_of(a) };
    const int64_t read = (v->Q - 1) * 2 + 3;
    v->columns = read > v->W + v->pad ? read : v->W + v->pad;
    if (v->columns > TD_STEM_COLUMNS_MAX)
        return td_error(TD_ENOKERNEL, "rows of %lld pixels", (long long)v->columns);
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    td_stem v;
    TD_TRY(shape_of(n, &v));
    return td_native_check_layouts(n, &layouts);
}

bool td_native_stem_preferred_layout(const td_node *n, td_node_layouts *out)
{
    td_stem v;
    if (shape_of(n, &v) != TD_OK)
        return false;
    *out = layouts;
    return true;
}

/* elements of a filter that is packed in pairs of rows */
static int64_t packed_count(const td_stem *v)
{
    return (v->K + VECTOR - 1) / VECTOR * VECTOR * ((v->C * 3 + 1) / 2) * 3 * 2;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    td_stem v;
    TD_TRY(shape_of(n, &v));
    if (td_in_type(n, 0)->dtype == TD_DT_BF16)
        out->scratch_bytes = (size_t)packed_count(&v) * sizeof(uint16_t);
    return TD_OK;
}

/* w [K / 8, 3 C, 3, 8]; to [K / 16, pairs, 3, 16, 2] */
static void pack_filter(const td_stem *v, const uint16_t *w, uint16_t *to)
{
    const int64_t rows = v->C * 3, pairs = (rows + 1) / 2;
    memset(to, 0, (size_t)packed_count(v) * sizeof *to);
    for (int64_t k = 0; k < v->K; k++)
        for (int64_t row = 0; row < rows; row++)
            for (int64_t s = 0; s < 3; s++)
                to[(((k / VECTOR * pairs + row / 2) * 3 + s) * VECTOR + k % VECTOR) * 2 + row % 2] =
                    w[((k / TD_STEM_LANES * rows + row) * 3 + s) * TD_STEM_LANES +
                      k % TD_STEM_LANES];
}

static void run_bf16(const td_stem *v, void *const *args)
{
    td_stem_loops_bf16 *loops = td_stem_loops_for_bf16();
    pack_filter(v, args[1], args[4]);
#pragma omp parallel for schedule(dynamic, ROWS)
    for (int64_t i = 0; i < v->N * v->P; i++)
        loops(v, i / v->P, i % v->P, args[0], args[4], args[2], args[3]);
}

static td_status run(const td_prepared *p, void *const *args)
{
    td_stem v;
    TD_CHECK(shape_of(p->node, &v) == TD_OK);
    if (td_in_type(p->node, 0)->dtype == TD_DT_BF16) {
        run_bf16(&v, args);
        return TD_OK;
    }
    td_stem_loops *loops = td_stem_loops_at(0);
#pragma omp parallel for schedule(dynamic, ROWS)
    for (int64_t i = 0; i < v.N * v.P; i++)
        loops(&v, i / v.P, i % v.P, args[0], args[1], args[2], args[3]);
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    td_stem v;
    TD_CHECK(shape_of(n, &v) == TD_OK);
    return td_work_share_of((v.N * v.P + ROWS - 1) / ROWS, (double)(ROWS * v.Q * v.K), threads);
}

const td_kernel td_native_stem_conv_fused = { .name = "native_stem_conv_fused",
                                              .op = &td_op_conv2d_fused,
                                              .accepts = accepts,
                                              .prepare = prepare,
                                              .run = run,
                                              .share = share };
