/*
 * native_amx.c -- the geometry of native_amx.h
 */
#include "backend/native/amx/native_amx.h"

#include "backend/native/common/native_division.h"
#include "backend/native/conv/native_conv.h"

static bool is_grad_x(const td_node *n)
{
    return n->op == &td_op_conv2d_grad_x;
}

td_amx_windows td_amx_windows_of(const td_node *n)
{
    if (n->op == &td_op_conv2d_int8) {
        const td_conv_int8_attr *a = n->attr;
        return (td_amx_windows){ a->stride, a->pad, a->pad_extra, a->dilation, a->groups };
    }
    const td_conv_attr *a = n->attr;
    return (td_amx_windows){ a->stride, a->pad, a->pad_extra, a->dilation, a->groups };
}

/* which row (or column) the result's first one reads for tap r, before the padding is added */
static int64_t first_read(const td_node *n, int64_t r)
{
    const td_amx_windows v = td_amx_windows_of(n);
    return is_grad_x(n) ? v.pad - r * v.dilation : r * v.dilation - v.pad;
}

/* of one dimension: numbers of cells, from the result's, and the remainder, for tap r */
typedef struct {
    int64_t cell;
    int remainder;
} reading;

static reading reading_of(const td_node *n, int64_t r)
{
    const int64_t stride = td_amx_windows_of(n).stride, at = first_read(n, r);
    const int64_t cell = at >= 0 ? at / stride : -divide_up(-at, stride);
    return (reading){ cell, (int)(at - cell * stride) };
}

/* of one dimension: the least and the largest cell that `taps` taps read, 0 included */
typedef struct {
    int64_t from, to;
} span;

static span span_of(const td_node *n, int64_t taps)
{
    span s = { 0, 0 };
    for (int64_t r = 0; r < taps; r++) {
        const int64_t cell = reading_of(n, r).cell;
        s.from = smaller(s.from, cell);
        s.to = larger(s.to, cell);
    }
    return s;
}

/* the number of the plane with these remainders, a new one if necessary */
static int plane_of(td_amx_geometry *g, int row, int col)
{
    for (int i = 0; i < g->n_planes; i++)
        if (g->plane[i].row == row && g->plane[i].col == col)
            return i;
    g->plane[g->n_planes].row = row;
    g->plane[g->n_planes].col = col;
    return g->n_planes++;
}

static void add_taps(const td_node *n, const td_type *w, td_amx_geometry *g)
{
    for (int64_t r = 0; r < w->dim[2]; r++)
        for (int64_t s = 0; s < w->dim[3]; s++) {
            const reading row = reading_of(n, r), col = reading_of(n, s);
            g->tap[g->n_taps++] = (td_amx_tap){ plane_of(g, row.remainder, col.remainder),
                                                row.cell + g->top, col.cell + g->left };
        }
}

/* all pixels in one row */
static void flatten(td_amx_geometry *g)
{
    const int64_t pixels = g->N * g->H * g->W;
    g->is_flat = true;
    g->W = g->Q = g->row = pixels;
    g->N = g->H = g->P = 1;
}

td_amx_geometry td_amx_geometry_of(const td_node *n)
{
    const td_amx_windows v = td_amx_windows_of(n);
    const td_native_conv_types t = td_native_conv_types_of(n);
    const td_type *x = is_grad_x(n) ? t.y : t.x, *y = is_grad_x(n) ? t.x : t.y;
    const span rows = span_of(n, t.w->dim[2]), cols = span_of(n, t.w->dim[3]);
    td_amx_geometry g = { .N = x->dim[0],
                          .C = x->dim[1],
                          .H = x->dim[2],
                          .W = x->dim[3],
                          .K = y->dim[1],
                          .P = y->dim[2],
                          .Q = y->dim[3],
                          .channels = TD_AMX_CELL_BYTES / (int64_t)td_dtype_bytes(x->dtype),
                          .stride = v.stride,
                          .top = -rows.from,
                          .left = -cols.from,
                          .tall = rows.to - rows.from,
                          .wide = cols.to - cols.from };
    /* what is read behind a row has to be the zeros before the next one */
    g.row = larger(g.Q + cols.to, divide_up(g.W, g.stride) + g.left);
    add_taps(n, t.w, &g);
    if (g.n_taps == 1 && v.pad == 0 && v.pad_extra == 0 && g.stride == 1)
        flatten(&g);
    return g;
}

int64_t td_amx_numbers(const td_amx_geometry *g, int64_t rows)
{
    return g->is_flat ? rows : (rows - 1) * g->row + g->Q;
}

int64_t td_amx_plane_cells(const td_amx_geometry *g, int64_t rows)
{
    const int64_t read = divide_up(td_amx_numbers(g, rows), TD_AMX_PIXELS) * TD_AMX_PIXELS;
    const int64_t written = g->is_flat ? 0 : (rows + g->tall) * g->row;
    return larger(read + g->tall * g->row + g->wide, written);
}

int64_t td_amx_cells(const td_amx_geometry *g, int64_t images, int64_t rows)
{
    return images * g->n_planes * td_amx_plane_cells(g, rows) * divide_up(g->C, g->channels);
}
