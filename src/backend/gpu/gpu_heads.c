/*
 * gpu_heads.c -- a detector's heads as one table, and back
 *
 * Both sides are described as [N, columns, anchors, H, W], whose strides in the table depend on the
 * order; so joining is an addition, and the gradients are a copy and a sum.  In the order `pixel`,
 * a head whose channels are last is stored as its rows are: both sides are images of pixels.
 */
#include "backend/gpu/gpu_pixels.h"

enum { IMAGE, COLUMN, ANCHOR, HEIGHT, WIDTH };

typedef struct {
    td_gpu_tensor x, table; /* the head, and its rows */
} pair;

/* a dimension of channels as columns and anchors; `x` has rank 4 */
static void split_channels(td_gpu_tensor *x, const td_join_attr *a)
{
    const int64_t anchors = x->dim[ANCHOR] / a->columns, step = x->stride[ANCHOR];
    const bool is_pixel = a->order == TD_JOIN_PIXEL; /* channel a columns + k, else k anchors + a */
    x->dim[IMAGE] = x->dim[COLUMN];
    x->stride[IMAGE] = x->stride[COLUMN];
    x->dim[COLUMN] = a->columns;
    x->stride[COLUMN] = is_pixel ? step : anchors * step;
    x->dim[ANCHOR] = anchors;
    x->stride[ANCHOR] = is_pixel ? a->columns * step : step;
}

/* rows from `start` of `table` [N, rows, columns], as head x */
static pair pair_of(td_gpu_tensor x, td_gpu_tensor table, const td_join_attr *a, int64_t start)
{
    split_channels(&x, a);
    const int64_t anchors = x.dim[ANCHOR], area = x.dim[HEIGHT] * x.dim[WIDTH];
    const bool is_pixel = a->order == TD_JOIN_PIXEL; /* row p anchors + a, else a area + p */
    const int64_t pixel = is_pixel ? anchors * a->columns : a->columns;
    td_gpu_tensor rows = td_gpu_part(table, 3, 1, start, 1);
    const int64_t stride[] = { table.stride[TD_GPU_RANK - 3], 1,
                               is_pixel ? a->columns : area * a->columns, pixel * x.dim[WIDTH],
                               pixel };
    for (int d = 0; d < TD_GPU_RANK; d++) {
        rows.dim[d] = x.dim[d];
        rows.stride[d] = stride[d];
    }
    return (pair){ x, rows };
}

/* a vector [C] as [1, columns, anchors, 1, 1] */
static td_gpu_tensor by_channel(td_gpu_tensor v, const td_join_attr *a)
{
    v.dim[ANCHOR] = v.dim[WIDTH];
    v.stride[ANCHOR] = v.stride[WIDTH];
    v.dim[WIDTH] = 1;
    split_channels(&v, a);
    return v;
}

/* --- pixels ----------------------------------------------------------------------------------- */

/* as pixels, from element `first` of the table's images; false: not possible */
static bool pixels_of(const td_join_attr *a, const td_type *x, const td_type *table, int64_t start,
                      int64_t *first, td_gpu_pixel_map *out)
{
    const int64_t channels = x->dim[1], area = x->dim[2] * x->dim[3];
    const int64_t step = table->dim[1] * a->columns;
    *first = start * a->columns;
    if (a->order != TD_JOIN_PIXEL || !td_gpu_has_channels_last(x) ||
        !td_gpu_is_pixel_float(x->dtype) || channels * area > INT32_MAX)
        return false;
    *out = (td_gpu_pixel_map){ .width = td_gpu_width(channels, step, *first),
                               .n = x->dim[0],
                               .area = area,
                               .channels = channels };
    return true;
}

static void *element_of(void *data, td_dtype d, int64_t i)
{
    return (char *)data + (size_t)i * td_dtype_bytes(d);
}

/* operand i and its bias to the rows from `start`; false: not possible */
static bool join_pixels(const td_prepared *p, int i, int64_t start, void *const *args,
                        td_gpu_pixel_map *m)
{
    const td_node *n = p->node;
    const td_type *x = td_in_type(n, i), *bias = td_in_type(n, i + 1), *y = &n->out[0]->type;
    int64_t first;
    if (!pixels_of(n->attr, x, y, start, &first, m))
        return false;
    m->dtype = x->dtype;
    m->result = y->dtype;
    m->vector = bias->dtype;
    m->by = 1;
    m->x = args[i];
    m->x_step = m->channels * m->area;
    m->v = args[i + 1];
    m->y = element_of(args[n->n_in], y->dtype, first);
    m->y_step = y->dim[1] * y->dim[2];
    return true;
}

/* the gradients of a head and of its bias; false: not possible */
static bool split_pixels(const td_node *n, void *const *args, td_gpu_pixel_map *m,
                         td_gpu_pixel_sums *s)
{
    const td_join_attr *a = n->attr;
    const td_type *dy = td_in_type(n, 0), *dx = &n->out[0]->type, *dbias = &n->out[1]->type;
    int64_t first;
    if (!pixels_of(a, dx, dy, a->start, &first, m))
        return false;
    m->dtype = dy->dtype;
    m->result = dx->dtype;
    m->x_step = dy->dim[1] * dy->dim[2];
    m->y_step = m->channels * m->area;
    *s = (td_gpu_pixel_sums){ .dtype = dy->dtype,
                              .result = dbias->dtype,
                              .width = m->width,
                              .by = 1,
                              .n = m->n,
                              .area = m->area,
                              .channels = m->channels,
                              .step = m->x_step,
                              .is_total = true };
    s->n_parts = td_gpu_pixel_parts(s->n, s->area, s->channels, s->width);
    if (args) {
        m->x = s->x = element_of(args[0], dy->dtype, first);
        m->y = args[2];
        s->y = args[3];
        s->sums = args[4];
    }
    return true;
}

static td_status prepare_join_grad(const td_node *n, td_prepared *out)
{
    td_gpu_pixel_map m;
    td_gpu_pixel_sums s;
    out->scratch_bytes = split_pixels(n, NULL, &m, &s) ? td_gpu_pixel_sums_bytes(&s) : 0;
    return TD_OK;
}

/* --- runs ------------------------------------------------------------------------------------- */

static td_status join_head(const td_prepared *p, int i, int64_t start, void *const *args)
{
    const td_node *n = p->node;
    const td_join_attr *a = n->attr;
    td_gpu_pixel_map m;
    if (join_pixels(p, i, start, args, &m))
        return td_gpu_status(td_gpu()->pixel_map(&m));
    const td_gpu_tensor table = td_gpu_tensor_at(p, n->n_in, args);
    const pair head = pair_of(td_gpu_tensor_at(p, i, args), table, a, start);
    const td_gpu_tensor bias = by_channel(td_gpu_tensor_at(p, i + 1, args), a);
    return td_gpu_status(td_gpu()->map(&(td_gpu_map){
        .f = TD_GPU_ADD, .y = head.table, .x = head.x, .z = td_gpu_broadcast(bias, &head.x) }));
}

static td_status run_join(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    int64_t start = 0;
    for (int i = 0; i < n->n_in; i += 2) {
        TD_TRY(join_head(p, i, start, args));
        start += td_join_rows(n->attr, td_in_type(n, i));
    }
    return TD_OK;
}

static td_status run_join_grad(const td_prepared *p, void *const *args)
{
    const td_join_attr *a = p->node->attr;
    td_gpu_pixel_map m;
    td_gpu_pixel_sums s;
    if (split_pixels(p->node, args, &m, &s)) {
        TD_TRY(td_gpu_status(td_gpu()->pixel_map(&m)));
        return td_gpu_status(td_gpu()->pixel_sums(&s));
    }
    const td_gpu_tensor dy = td_gpu_tensor_at(p, 0, args);
    const pair head = pair_of(td_gpu_tensor_at(p, 2, args), dy, a, a->start);
    TD_TRY(td_gpu_status(
        td_gpu()->map(&(td_gpu_map){ .f = TD_GPU_SCALE, .by = 1, .y = head.x, .x = head.table })));
    return td_gpu_status(td_gpu()->reduce(&(td_gpu_reduce){
        .by = 1, .y = by_channel(td_gpu_tensor_at(p, 3, args), a), .x = head.table }));
}

const td_kernel td_gpu_join_heads = { .name = "cuda_join_heads",
                                      .op = &td_op_join_heads,
                                      .accepts = td_gpu_accepts_any,
                                      .run = run_join };
const td_kernel td_gpu_join_heads_grad = { .name = "cuda_join_heads_grad",
                                           .op = &td_op_join_heads_grad,
                                           .accepts = td_gpu_accepts_any,
                                           .prepare = prepare_join_grad,
                                           .run = run_join_grad };
