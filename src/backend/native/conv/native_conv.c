/*
 * native_conv.c -- operands of convolutions; sums of filter gradients
 */
#include "backend/native/conv/native_conv.h"

#include <string.h>

#include "ops/ops.h"

enum { JOBS_WANTED = 64 };

/* --- operands --------------------------------------------------------------------------------- */

bool td_native_is_conv(const td_node *n)
{
    return n->op == &td_op_conv2d || n->op == &td_op_conv2d_fused ||
           n->op == &td_op_conv2d_grad_x || n->op == &td_op_conv2d_grad_w;
}

td_native_conv_types td_native_conv_types_of(const td_node *n)
{
    if (n->op == &td_op_conv2d_grad_x)
        return (td_native_conv_types){ &n->out[0]->type, td_in_type(n, 1), td_in_type(n, 0) };
    if (n->op == &td_op_conv2d_grad_w)
        return (td_native_conv_types){ td_in_type(n, 1), &n->out[0]->type, td_in_type(n, 0) };
    return (td_native_conv_types){ td_in_type(n, 0), td_in_type(n, 1), &n->out[0]->type };
}

td_status td_native_conv_check(const td_node *n)
{
    if (td_is_tf32(n))
        return td_error(TD_ENOKERNEL, "tf32 is set");
    const td_native_conv_types t = td_native_conv_types_of(n);
    if (n->op == &td_op_conv2d_grad_w && t.w->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "the gradient is not f32");
    if (n->op == &td_op_conv2d_fused && n->n_in > 3)
        return td_error(TD_ENOKERNEL, "there is a residual");
    if (n->op == &td_op_conv2d_fused && n->n_in > 2 && td_in_type(n, 2)->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "the bias is not f32");
    if (n->op == &td_op_conv2d_fused && ((const td_conv_attr *)n->attr)->act != TD_CONV_LINEAR)
        return td_error(TD_ENOKERNEL, "an activation other than relu is fused into it");
    return TD_OK;
}

void td_native_conv_layouts(const td_node *n, const char *image, const char *filter,
                            td_node_layouts *out)
{
    const bool is_grad_w = n->op == &td_op_conv2d_grad_w;
    *out = (td_node_layouts){ 0 };
    memcpy(out->in[0], image, strlen(image) + 1);
    memcpy(is_grad_w ? out->in[1] : out->out, image, strlen(image) + 1);
    memcpy(is_grad_w ? out->out : out->in[1], filter, strlen(filter) + 1);
}

td_status td_native_conv_check_layouts(const td_node *n, const char *image, const char *filter)
{
    const td_native_conv_types t = td_native_conv_types_of(n);
    if (strcmp(t.x->layout, image) != 0 || strcmp(t.y->layout, image) != 0)
        return td_error(TD_ENOKERNEL, "the images do not have layout '%s'", image);
    if (strcmp(t.w->layout, filter) != 0)
        return td_error(TD_ENOKERNEL, "the filter does not have layout '%s'", filter);
    return TD_OK;
}

/* --- filter gradients ------------------------------------------------------------------------- */

td_native_filter_parts td_native_filter_divide(int64_t N, int64_t units, int64_t step)
{
    const int64_t wanted = (JOBS_WANTED + units - 1) / units;
    const int64_t steps = (N + step - 1) / step, images = (steps + wanted - 1) / wanted * step;
    return (td_native_filter_parts){ N, units, images, (N + images - 1) / images };
}

td_work_share td_native_filter_share(const td_native_filter_parts *p, int64_t each, int threads)
{
    return td_work_share_of(p->n * p->units, (double)(p->images * each), threads);
}

size_t td_native_filter_scratch(const td_native_filter_parts *p, const td_type *dw)
{
    return (size_t)(p->n - 1) * (size_t)td_type_bytes(dw);
}

/* sums part k of one unit */
static void sum_part(const td_native_filter_job *j, int64_t k, int64_t unit)
{
    const td_native_filter_parts *p = &j->parts;
    const int64_t size = j->count / p->units, from = k * p->images, to = from + p->images;
    float *sums = (k ? j->scratch + (k - 1) * j->count : j->dw) + unit * size;
    memset(sums, 0, (size_t)size * sizeof *sums);
    j->add(j->context, from, to < p->N ? to : p->N, unit, sums);
}

static void add_parts(const td_native_filter_job *j, int64_t unit)
{
    const int64_t size = j->count / j->parts.units;
    for (int64_t k = 1; k < j->parts.n; k++)
        for (int64_t i = unit * size; i < (unit + 1) * size; i++)
            j->dw[i] += j->scratch[(k - 1) * j->count + i];
}

void td_native_filter_run(const td_native_filter_job *j)
{
#pragma omp parallel for collapse(2)
    for (int64_t k = 0; k < j->parts.n; k++)
        for (int64_t unit = 0; unit < j->parts.units; unit++)
            sum_part(j, k, unit);
#pragma omp parallel for if (j->parts.n > 1)
    for (int64_t unit = 0; unit < j->parts.units; unit++)
        add_parts(j, unit);
}
