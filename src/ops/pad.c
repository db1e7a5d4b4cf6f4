/*
 * pad(x) {axis, before, after, mode, value} -> y      elements added before and after along an axis
 *
 *   x  [.., D, ..]  any float
 *   y  [.., before + D + after, ..]  same as x
 *
 *   mode       the added elements, by the example of x = a b c with 2 before and 2 after
 *   constant   value value  a b c  value value
 *   reflect    c b  a b c  b a          less than D on either side
 *   edge       a a  a b c  c c
 *   wrap       b c  a b c  a b          at most D on either side
 *
 * Composite: the decompose pass makes it a concat of constants or of slices of x, whose gradients
 * are the gradient of pad.  Source: numpy's pad, ONNX operator Pad.
 */
#include "ir/build.h"
#include "ops/ops.h"

static const char *const mode_names[] = { "constant", "reflect", "edge", "wrap", NULL };

/* clang-format off */
static const td_field pad_fields[] = {
    TD_INT (td_pad_attr, axis,   1, 0, TD_RANK_MAX - 1, "dimension to pad along"),
    TD_INT (td_pad_attr, before, 0, 0, TD_PAD_MAX, "elements added before"),
    TD_INT (td_pad_attr, after,  0, 0, TD_PAD_MAX, "elements added after"),
    TD_ENUM(td_pad_attr, mode, TD_PAD_CONSTANT, mode_names, "what is added"),
    TD_REAL(td_pad_attr, value, 0, -3.4028234663852886e38, 3.4028234663852886e38,
            "the number that mode constant adds"),
    TD_END,
};
/* clang-format on */

static td_status pad_infer(const td_node *n, td_type *y)
{
    const td_pad_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0);
    if (a->axis >= x->rank)
        return td_error(TD_ESHAPE, "pad: axis is %d, the operand has %d dimensions", a->axis,
                        x->rank);
    const int64_t size = x->dim[a->axis], most = a->before > a->after ? a->before : a->after;
    const int64_t room = a->mode == TD_PAD_REFLECT ? size - 1
                         : a->mode == TD_PAD_WRAP  ? size
                                                   : TD_PAD_MAX;
    if (most > room)
        return td_error(TD_ESHAPE, "pad: %lld elements in mode %s, of %lld elements only %lld are",
                        (long long)most, mode_names[a->mode], (long long)size, (long long)room);
    *y = td_type_plain(x);
    y->dim[a->axis] += a->before + a->after;
    return TD_OK;
}

/* --- decomposition ---------------------------------------------------------------------------- */

/* parts that are joined along an axis, as many at a time as an op may have operands */
typedef struct {
    td_builder *b;
    int axis, n;
    td_value *at[TD_IN_MAX];
} parts;

static void add(parts *p, td_value *v)
{
    if (p->n == TD_IN_MAX) {
        p->at[0] = td_concat(p->b, p->n, p->at, p->axis);
        p->n = 1;
    }
    p->at[p->n++] = v;
}

static td_value *slice_of(parts *p, td_value *x, int64_t start, int64_t size)
{
    const td_slice_attr a = { p->axis, start, size, 1 };
    return td_emit(p->b, &td_op_slice, &a, x);
}

static void add_constant(parts *p, const td_value *x, int64_t size, double value)
{
    td_type t = td_type_plain(&x->type);
    t.dim[p->axis] = size;
    const td_constant_attr a = { .value = value, .type = td_build_type_text(p->b, &t) };
    add(p, td_emit_n(p->b, &td_op_constant, &a, 0, NULL, NULL));
}

/* element `at`, `size` times */
static void add_copies(parts *p, td_value *x, int64_t at, int64_t size)
{
    td_text text = { 0 };
    for (int d = 0; d < x->type.rank; d++)
        td_text_add(&text, d ? ":%lld" : "shape=%lld",
                    (long long)(d == p->axis ? size : x->type.dim[d]));
    if (td_text_status(&text) != TD_OK)
        td_build_fail(p->b, td_text_status(&text));
    void *attr = td_build_attr(p->b, &td_op_broadcast_to, td_text_get(&text));
    td_text_release(&text);
    add(p, td_emit(p->b, &td_op_broadcast_to, attr, slice_of(p, x, at, 1)));
}

/* `size` elements before x, if `is_end` after it */
static void add_side(parts *p, const td_pad_attr *a, td_value *x, int64_t size, bool is_end)
{
    const int64_t whole = x->type.dim[a->axis];
    if (size == 0)
        return;
    if (a->mode == TD_PAD_CONSTANT)
        add_constant(p, x, size, a->value);
    else if (a->mode == TD_PAD_EDGE)
        add_copies(p, x, is_end ? whole - 1 : 0, size);
    else if (a->mode == TD_PAD_WRAP)
        add(p, slice_of(p, x, is_end ? 0 : whole - size, size));
    else
        for (int64_t i = 0; i < size; i++)
            add(p, slice_of(p, x, is_end ? whole - 2 - i : size - i, 1));
}

static void pad_decompose(td_builder *b, const td_node *n, td_value *const *in, td_value **out)
{
    const td_pad_attr *a = n->attr;
    parts p = { .b = b, .axis = a->axis };
    add_side(&p, a, in[0], a->before, false);
    add(&p, in[0]);
    add_side(&p, a, in[0], a->after, true);
    out[0] = p.n > 1 ? td_concat(b, p.n, p.at, a->axis) : in[0];
}

const td_op td_op_pad = {
    .name = "pad",
    .summary = "elements added before and after along an axis",
    .n_in = 1,
    .n_out = 1,
    .fields = pad_fields,
    .attr_bytes = sizeof(td_pad_attr),
    .layout = TD_LAYOUT_PLAIN,
    .is_composite = true,
    .infer = pad_infer,
    .decompose = pad_decompose,
};

const char *td_pad_mode_name(int mode)
{
    return mode_names[mode];
}
