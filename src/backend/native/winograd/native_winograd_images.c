/*
 * native_winograd_images.c -- layouts of images and transformed tiles of Winograd's kernels, and
 * the numbers of tiles
 */
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/winograd/native_winograd.h"
#include "tandem/program.h"

td_native_wino_image td_native_wino_image_of(const td_type *t)
{
    const int64_t area = t->dim[2] * t->dim[3];
    if (strcmp(t->layout, "acdb") == 0)
        return (td_native_wino_image){ .pixel = t->dim[1],
                                       .block = TD_WINO_LANES,
                                       .half = TD_WINO_HALF };
    if (strcmp(t->layout, "aBcd8b") == 0)
        return (td_native_wino_image){ .pixel = TD_WINO_HALF,
                                       .block = TD_WINO_LANES * area,
                                       .half = TD_WINO_HALF * area };
    return (td_native_wino_image){ .pixel = TD_WINO_LANES,
                                   .block = TD_WINO_LANES * area,
                                   .half = TD_WINO_HALF };
}

int64_t td_native_wino_step(int64_t channels, int64_t room)
{
    return (channels / TD_WINO_LANES * room | 1) * TD_WINO_LANES;
}

td_status td_native_wino_check_halves(void)
{
    const int lanes = td_native_wino_simd_at(TD_DT_F32, 0)->lanes;
    return lanes <= TD_WINO_HALF
               ? TD_OK
               : td_error(TD_ENOKERNEL, "blocks of %d channels for registers of %d lanes",
                          TD_WINO_HALF, lanes);
}

bool td_native_wino_prefers_halves(const td_type *t)
{
    return td_native_wino_simd_at(TD_DT_F32, 0)->lanes <= TD_WINO_HALF &&
           strcmp(t->layout, "aBcd16b") != 0;
}

/* --- tiles ------------------------------------------------------------------------------------ */

static int64_t length(td_native_wino_range r)
{
    return r.to - r.from;
}

void td_native_wino_divide(td_native_wino *w)
{
    const bool is_transposed = w->form == TD_WINO_TRANSPOSED;
    int64_t end = 0;
    w->side = td_winograd_points(w->form);
    w->filters = w->form == TD_WINO_SMALL ? TD_WINO_SMALL_SIDE : TD_WINO_SIDE;
    w->in_step = w->form == TD_WINO_STRIDED ? 2 : 1;
    w->out_step = is_transposed ? 2 : 1;
    w->rows = td_winograd_side_of(is_transposed ? w->H : w->P, w->form);
    w->cols = td_winograd_side_of(is_transposed ? w->W : w->Q, w->form);
    for (int kind = 0; kind < TD_WINO_KINDS; kind++) {
        end += w->N * length(td_native_wino_along(&w->rows, td_native_wino_is_short_row(kind))) *
               length(td_native_wino_along(&w->cols, td_native_wino_is_short_col(kind)));
        w->ends[kind] = end;
    }
}

td_native_wino td_native_wino_geometry(const td_node *n, const td_type *x, const td_type *y)
{
    const td_winograd_attr *a = n->attr;
    const td_winograd_form form = td_winograd_form_of(n);
    td_native_wino w = { .N = x->dim[0],
                         .C = x->dim[1],
                         .H = x->dim[2],
                         .W = x->dim[3],
                         .K = y->dim[1],
                         .P = y->dim[2],
                         .Q = y->dim[3],
                         .pad = form == TD_WINO_TRANSPOSED ? 0 : a->pad,
                         .form = form,
                         .x = td_native_wino_image_of(x),
                         .y = td_native_wino_image_of(y) };
    td_native_wino_divide(&w);
    return w;
}

static int64_t points_of(const td_native_wino *w, int kind)
{
    const int64_t last = td_winograd_is_last(w->form, TD_WINO_TILE) ? 2 : 1;
    return (w->side - last * td_native_wino_is_short_row(kind)) *
           (w->side - last * td_native_wino_is_short_col(kind));
}

int64_t td_native_wino_products(const td_native_wino *w, int64_t tile)
{
    int64_t n = 0, from = 0;
    for (int kind = 0; kind < TD_WINO_KINDS && from < tile; from = w->ends[kind++])
        n += (smaller(tile, w->ends[kind]) - from) * points_of(w, kind);
    return n;
}

int64_t td_native_wino_part(const td_native_wino *w, int64_t i, int64_t n)
{
    const int64_t all = w->ends[TD_WINO_KINDS - 1];
    int64_t left = td_native_wino_products(w, all) * i / n, from = 0;
    for (int kind = 0; kind < TD_WINO_KINDS; from = w->ends[kind++]) {
        const int64_t each = points_of(w, kind), products = (w->ends[kind] - from) * each;
        if (left < products)
            return from + (left + each / 2) / each;
        left -= products;
    }
    return all;
}

td_native_wino_range td_native_wino_with_point(const td_native_wino *w, int64_t first, int64_t n,
                                               int64_t p)
{
    const int64_t end = first + n;
    const bool is_last_row = td_winograd_is_last(w->form, p / w->side);
    const bool is_last_col = td_winograd_is_last(w->form, p % w->side);
    const int64_t from = is_last_col ? w->ends[TD_WINO_SHORT_COLS] : 0;
    const int64_t to = w->ends[is_last_row   ? TD_WINO_WHOLE
                               : is_last_col ? TD_WINO_SHORT_ROWS
                                             : TD_WINO_SHORT];
    td_native_wino_range r = { smaller(from, end) - first, smaller(to, end) - first };
    r.to = r.to > 0 ? r.to : 0;
    r.from = r.from > 0 ? smaller(r.from, r.to) : 0;
    return r;
}
