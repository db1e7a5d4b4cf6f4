/*
 * native_stem.c -- the first convolution of MobileNet, EfficientNet and the like, in inference: 3 x
 * 3 with stride 2 from images in plain order to channels last
 *
 * oneDNN's needs the images with channels last, too, and writing them so takes half as long as the
 * convolution itself.  native_stem.h has the layouts.  Rows of the result are taken in turn by the
 * threads; results have the same bits with any number of them.
 */
#include "backend/native/native_stem.h"

#include "backend/native/native_conv.h"
#include "tandem/program.h"

enum { ROWS = 8 /* taken at a time */ };

static const td_node_layouts layouts = { .in = { "", "Abcd8a", "" }, .out = "acdb" };

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
    if (x->dtype != TD_DT_F32 || td_in_type(n, 2)->dtype != TD_DT_F32 || !td_stem_loops_at(0))
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

static td_status run(const td_prepared *p, void *const *args)
{
    td_stem v;
    TD_CHECK(shape_of(p->node, &v) == TD_OK);
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
                                              .run = run,
                                              .share = share };
