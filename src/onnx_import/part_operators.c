/*
 * part_operators.c -- ONNX operators that make parts of a tensor: sequences, blocks of pixels
 *
 * PyTorch's newer exporter writes chunk and split as SplitToSequence and SequenceAt if it does not
 * optimize.  A sequence is no value here: SequenceAt reads the operands of the other node.
 *
 * Source: ONNX operator documentation, opsets 11 to 21.
 */
#include <string.h>

#include "onnx_import/importer.h"
#include "onnx_import/known_tensor.h"

/* --- sequences -------------------------------------------------------------------------------- */

td_status td_import_sequence(td_importer *im, td_value **y)
{
    *y = NULL;
    return im->node->n_in >= 1 ? TD_OK : td_import_wrong(im, "an operand is missing");
}

/* part i of the current node's, a SplitToSequence, along a dimension of `whole` */
static td_status part_of(td_importer *im, int64_t whole, int64_t i, int64_t *start, int64_t *size)
{
    td_known split = { .count = 1 };
    const bool is_given = im->node->n_in > 1 && *im->node->in[1];
    int64_t n = whole, each = 1;
    if (is_given && (!td_known_get(&im->folder, im->node, 1, &split) || split.dtype != TD_DT_I64))
        return td_import_refuse(im, "sizes that are not constants");
    const bool is_list = is_given && split.rank == 1;
    if (is_given && !is_list)
        each = td_known_int(&split, 0);
    if (each < 1 || split.count < 1)
        return td_import_wrong(im, "a part without elements");
    n = is_list ? split.count : (whole - 1) / each + 1;
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n)
        return td_import_wrong(im, "an index is out of range");
    *start = is_list ? 0 : i * each;
    *size = is_list ? td_known_int(&split, i) : each < whole - *start ? each : whole - *start;
    for (int64_t k = 0; is_list && k < i; k++)
        if (__builtin_add_overflow(*start, td_known_int(&split, k), start))
            return td_import_wrong(im, "the parts do not make the whole");
    return *start >= 0 && *size >= 1 && *start < whole && *size <= whole - *start
               ? TD_OK
               : td_import_wrong(im, "the parts do not make the whole");
}

/* the current node is a SplitToSequence */
static td_status get_part(td_importer *im, int64_t i, td_value **y)
{
    td_value *x;
    int64_t axis, keep, dim[TD_RANK_MAX];
    int rank = 0;
    TD_TRY(td_import_value_at(im, 0, &x));
    TD_TRY(td_import_attr_int(im, "axis", 0, &axis));
    TD_TRY(td_import_attr_int(im, "keepdims", 1, &keep));
    td_type t = td_value_type(x);
    axis += axis < 0 ? t.rank : 0;
    if (axis < 0 || axis >= t.rank)
        return td_import_wrong(im, "an axis is out of range");
    td_slice_attr a = { .axis = (int)axis, .step = 1 };
    TD_TRY(part_of(im, t.dim[axis], i, &a.start, &a.size));
    *y = a.size < t.dim[axis] ? td_emit(im->b, &td_op_slice, &a, x) : x;
    if (keep || (im->node->n_in > 1 && *im->node->in[1]))
        return TD_OK;
    for (int d = 0; d < t.rank; d++)
        if (d != axis)
            dim[rank++] = t.dim[d];
    *y = td_import_reshaped(im, *y, rank, dim);
    return TD_OK;
}

td_status td_import_sequence_at(td_importer *im, td_value **y)
{
    const td_onnx_node *here = im->node;
    const td_onnx_node *split = here->n_in == 2 ? td_onnx_producer(im->m, here->in[0]) : NULL;
    td_known at;
    if (!split || strcmp(split->op, "SplitToSequence") != 0)
        return td_import_refuse(im, "a sequence that SplitToSequence does not make");
    if (!td_known_get(&im->folder, here, 1, &at) || at.dtype != TD_DT_I64 || at.count != 1)
        return td_import_refuse(im, "an index that is not a constant");
    im->node = split;
    const td_status st = get_part(im, td_known_int(&at, 0), y);
    im->node = here;
    return st;
}

/* --- blocks of pixels ------------------------------------------------------------------------- */

/* images of at most 2^16 pixels a side, and the block's side */
static td_status block_at(td_importer *im, td_value **x, td_type *t, int64_t *side)
{
    TD_TRY(td_import_values_of(im, 1, 1, x));
    TD_TRY(td_import_attr_int(im, "blocksize", 0, side));
    *t = td_value_type(*x);
    if (t->rank != 4)
        return td_import_wrong(im, "the images have not four dimensions");
    return *side >= 1 && *side <= 1 << 12 ? TD_OK
                                          : td_import_wrong(im, "blocksize is out of range");
}

static td_value *moved(td_importer *im, td_value *x, int64_t a, int64_t b, int64_t c, int64_t d,
                       const int *perm)
{
    return td_transpose(im->b, td_reshape(im->b, x, 5, (int64_t[]){ -1, a, b, c, d }), perm);
}

/* channels to pixels: of [N, C, s, s, H, W] (mode CRD), or of [N, s, s, C, H, W] */
td_status td_import_depth_to_space(td_importer *im, td_value **y)
{
    td_value *x;
    td_type t;
    int64_t s;
    TD_TRY(block_at(im, &x, &t, &s));
    if (t.dim[1] % (s * s) || t.dim[2] > 1 << 16 || t.dim[3] > 1 << 16)
        return td_import_wrong(im, "the channels are no multiple of a block's pixels");
    const int64_t channels = t.dim[1] / (s * s), h = t.dim[2], w = t.dim[3];
    if (!td_import_attr_is(im, "mode", "CRD")) /* to [N, C, s s, H, W] first */
        x = moved(im, x, s * s, channels, h, w, (int[]){ 0, 2, 1, 3, 4 });
    x = moved(im, x, s, s, h, w, (int[]){ 0, 3, 1, 4, 2 });
    *y = td_reshape(im->b, x, 4, (int64_t[]){ -1, channels, h * s, w * s });
    return TD_OK;
}

/* pixels to channels [N, s, s, C, H, W] */
td_status td_import_space_to_depth(td_importer *im, td_value **y)
{
    td_value *x;
    td_type t;
    int64_t s;
    TD_TRY(block_at(im, &x, &t, &s));
    if (t.dim[2] % s || t.dim[3] % s)
        return td_import_wrong(im, "the sides are no multiple of a block's");
    const int64_t channels = t.dim[1], h = t.dim[2] / s, w = t.dim[3] / s;
    x = moved(im, x, h, s, w, s, (int[]){ 0, 2, 4, 1, 3 });
    x = moved(im, x, channels, s * s, h, w, (int[]){ 0, 2, 1, 3, 4 });
    *y = td_reshape(im->b, x, 4, (int64_t[]){ -1, td_mul_capped(channels, s * s), h, w });
    return TD_OK;
}
