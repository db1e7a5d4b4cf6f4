/*
 * transpose(x) {perm}          the dimensions in another order: dimension i of y is perm[i] of x
 * broadcast_to(x) {shape}      x repeated to a shape, by numpy's rules; -1 keeps a dimension of x
 *
 * transpose_view(x) {perm}     the same of images without a copy: y is x's memory.  Either perm is
 *                              0:2:3:1 and x in channels last, or 0:3:1:2 and y in channels last
 *
 *   transpose      x  any dtype            y  same dtype
 *   broadcast_to   x  any float            y  same dtype
 *
 * The gradient of transpose is the inverse transposition, that of broadcast_to a sum (sum_to).
 */
#include <string.h>

#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field transpose_fields[] = {
    TD_TEXT(td_transpose_attr, perm, "", "N:N:..", "dimension of x for each of y, joined by ':'"),
    TD_END,
};

static const td_field broadcast_fields[] = {
    TD_TEXT(td_reshape_attr, shape, "", "N:N:..",
            "dimensions of the result, joined by ':'; -1: that of x"),
    TD_END,
};
/* clang-format on */

bool td_transpose_perm(const td_node *n, int perm[TD_RANK_MAX])
{
    const char *s = ((const td_transpose_attr *)n->attr)->perm;
    const int rank = td_in_type(n, 0)->rank;
    unsigned seen = 0;
    for (int i = 0; i < rank; i++, s += 2) {
        if (!s || *s < '0' || *s >= '0' + rank || (seen >> (*s - '0') & 1) ||
            s[1] != (i + 1 < rank ? ':' : '\0'))
            return false;
        perm[i] = *s - '0';
        seen |= 1u << perm[i];
    }
    return rank > 0;
}

static td_status transpose_infer(const td_node *n, td_type *y)
{
    const char *text = ((const td_transpose_attr *)n->attr)->perm;
    const td_type *x = td_in_type(n, 0);
    int perm[TD_RANK_MAX];
    if (!td_transpose_perm(n, perm))
        return td_error(TD_ESHAPE, "transpose: '%.40s' is not an order of %d dimensions like 1:0",
                        text ? text : "", x->rank);
    *y = td_type_plain(x);
    for (int i = 0; i < x->rank; i++)
        y->dim[i] = x->dim[perm[i]];
    return TD_OK;
}

static bool is_perm(const td_node *n, const char *perm)
{
    return strcmp(((const td_transpose_attr *)n->attr)->perm, perm) == 0;
}

bool td_transpose_is(const td_node *n, const char *perm)
{
    return n->op == &td_op_transpose && is_perm(n, perm);
}

static td_status transpose_view_infer(const td_node *n, td_type *y)
{
    TD_TRY(transpose_infer(n, y));
    const char *from = td_in_type(n, 0)->layout;
    if (is_perm(n, TD_PERM_TO_FIRST) && !from[0])
        memcpy(y->layout, TD_CHANNELS_LAST, sizeof TD_CHANNELS_LAST);
    else if (!is_perm(n, TD_PERM_TO_LAST) || strcmp(from, TD_CHANNELS_LAST) != 0)
        return td_error(TD_ESHAPE, "transpose_view: %s of layout '%s' is not the same memory",
                        ((const td_transpose_attr *)n->attr)->perm, from);
    return TD_OK;
}

static void transpose_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    int perm[TD_RANK_MAX], back[TD_RANK_MAX] = { 0 };
    const int rank = td_in_type(n, 0)->rank;
    TD_CHECK(td_transpose_perm(n, perm));
    for (int i = 0; i < rank; i++)
        back[perm[i]] = i;
    dx[0] = td_transpose(b, dy[0], back);
}

static td_status broadcast_to_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 0);
    TD_TRY(td_shape_parse(n, y));
    bool fits = y->rank >= x->rank;
    for (int d = 0; fits && d < y->rank; d++) {
        const int k = d - (y->rank - x->rank);
        const int64_t from = k < 0 ? 1 : x->dim[k];
        if (y->dim[d] < 0)
            y->dim[d] = k < 0 ? 0 : from;
        fits = y->dim[d] > 0 && (from == 1 || from == y->dim[d]);
    }
    return fits ? TD_OK : td_error(TD_ESHAPE, "broadcast_to: operand 0 does not broadcast to it");
}

static void broadcast_to_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_sum_to, NULL, dy[0], n->in[0]);
}

const td_op td_op_transpose = {
    .name = "transpose",
    .summary = "the dimensions in another order",
    .n_in = 1,
    .n_out = 1,
    .fields = transpose_fields,
    .attr_bytes = sizeof(td_transpose_attr),
    .tf_op = "Transpose",
    .layout = TD_LAYOUT_PLAIN,
    .own_layout = 1u,
    .any_dtype = 1u,
    .infer = transpose_infer,
    .grad = transpose_grad,
};

const td_op td_op_transpose_view = {
    .name = "transpose_view",
    .summary = "transpose of images that moves nothing, made by pass layout",
    .n_in = 1,
    .n_out = 1,
    .in_rank = { 4 },
    .fields = transpose_fields,
    .attr_bytes = sizeof(td_transpose_attr),
    .tf_op = "Transpose",
    .layout = TD_LAYOUT_CHOOSES,
    .is_alias = true,
    .any_dtype = 1u,
    .infer = transpose_view_infer,
};

const td_op td_op_broadcast_to = {
    .name = "broadcast_to",
    .summary = "x repeated to a shape",
    .n_in = 1,
    .n_out = 1,
    .fields = broadcast_fields,
    .attr_bytes = sizeof(td_reshape_attr),
    .tf_op = "BroadcastTo",
    .layout = TD_LAYOUT_PLAIN,
    .infer = broadcast_to_infer,
    .grad = broadcast_to_grad,
};

td_value *td_transpose(td_builder *b, td_value *x, const int *perm)
{
    char text[2 * TD_RANK_MAX] = "";
    td_transpose_attr a = { text };
    for (int i = 0; i < x->type.rank; i++) {
        text[2 * i] = (char)('0' + perm[i]);
        text[2 * i + 1] = i + 1 < x->type.rank ? ':' : '\0';
    }
    return td_emit(b, &td_op_transpose, &a, x);
}
