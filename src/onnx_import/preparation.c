/*
 * preparation.c -- see preparation.h
 *
 * Float images may count from 0 to 1 or to 255.  What they are divided by tells: all deviations of
 * pixels from 0 to 1 are below 1.  One number for all channels is a preparation only if it divides
 * bytes; otherwise it may be a part of a network for normalized images, and stays in the graph.
 */
#include "onnx_import/preparation.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/text.h"
#include "ir/type.h"

#define BYTES_FROM 64  /* who divides by so much reads bytes */
#define UNIT_MOST  2.0 /* deviations and means of pixels from 0 to 1 are below */

typedef struct {
    const td_onnx *m;
    td_onnx_preparation *p;
    const char *value; /* the images after the nodes so far */
    bool is_float, is_last;
    bool has_arithmetic, has_channels; /* constants; with a number for each channel */
    bool has_last;                     /* these were added while the channels were last */
    double scale[3], shift[3];         /* value = scale images + shift */
} finder;

/* --- constants -------------------------------------------------------------------------------- */

static const td_tensor *tensor_of(const td_onnx *m, const char *name)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return &m->tensors[i];
    const td_onnx_node *n = td_onnx_producer(m, name);
    const bool is_constant = n && strcmp(n->op, "Constant") == 0 && n->n_attr == 1;
    return is_constant && n->attr[0].kind == TD_ONNX_TENSOR ? n->attr[0].tensor : NULL;
}

/* element i of a tensor of floats */
static double element(const td_tensor *t, int i)
{
    float f = 0;
    double d = 0;
    uint16_t half;
    if (t->dtype == TD_DT_F32) {
        memcpy(&f, (const char *)t->data + 4 * i, sizeof f);
        return (double)f;
    }
    if (t->dtype == TD_DT_F64) {
        memcpy(&d, (const char *)t->data + 8 * i, sizeof d);
        return d;
    }
    memcpy(&half, (const char *)t->data + 2 * i, sizeof half);
    if (t->dtype == TD_DT_F16)
        td_f16_to_f32_n(&half, 1, &f);
    else
        td_bf16_to_f32_n(&half, 1, &f);
    return (double)f;
}

/* has it a number for each channel, along the channels' dimension of images of rank 4? */
static bool is_by_channel(const td_tensor *t, int channels, bool is_last)
{
    const int at = t->rank - (is_last ? 1 : 3);
    bool fits = at >= 0 && t->rank <= 4 && t->dim[at] == channels;
    for (int d = 0; fits && d < t->rank; d++)
        fits = d == at || t->dim[d] == 1;
    return fits;
}

/* operand i of n as a number for each channel */
static bool get_numbers(finder *f, const td_onnx_node *n, int i, double out[3], bool *by_channel)
{
    const td_tensor *t = tensor_of(f->m, n->in[i]);
    if (!t || !td_dtype_is_float(t->dtype))
        return false;
    const size_t each = td_dtype_bytes(t->dtype);
    const size_t all = (size_t)f->p->channels * each;
    *by_channel = is_by_channel(t, f->p->channels, f->is_last);
    if (t->n_bytes != each && !(*by_channel && t->n_bytes == all))
        return false;
    *by_channel = *by_channel && t->n_bytes == all;
    for (int c = 0; c < 3; c++) {
        out[c] = element(t, *by_channel && f->p->channels == 3 ? c : 0);
        if (!isfinite(out[c]))
            return false;
    }
    return true;
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* the only node that reads the value; NULL: several do, or it is an output.  `has_order`: it has
   the order of dimensions of the graph's images, so that Shape may read it, too */
static const td_onnx_node *reader_of(const td_onnx *m, const char *value, bool has_order)
{
    const td_onnx_node *reader = NULL;
    int n = 0;
    for (size_t i = 0; i < m->n_nodes; i++)
        for (int k = 0; k < m->nodes[i].n_in; k++)
            if (strcmp(m->nodes[i].in[k], value) == 0 &&
                !(has_order && strcmp(m->nodes[i].op, "Shape") == 0)) {
                reader = &m->nodes[i];
                n++;
            }
    for (size_t i = 0; i < m->outputs.n; i++)
        n += strcmp(m->outputs.at[i].name, value) == 0;
    return n == 1 ? reader : NULL;
}

static bool take_cast(finder *f, const td_onnx_node *n)
{
    const td_onnx_attr *to = td_onnx_attr_find(n, "to");
    f->is_float = to && to->kind == TD_ONNX_INT && td_dtype_is_float(td_onnx_dtype_of(to->i));
    return f->is_float;
}

static bool take_transpose(finder *f, const td_onnx_node *n)
{
    static const int64_t perm[4] = { 0, 3, 1, 2 };
    const td_onnx_attr *a = td_onnx_attr_find(n, "perm");
    if (!f->is_last || !a || a->kind != TD_ONNX_INTS || a->n != 4 ||
        memcmp(a->ints, perm, sizeof perm) != 0)
        return false;
    f->is_last = false;
    return true;
}

/* one of + - x / with a constant */
static bool take_arithmetic(finder *f, const td_onnx_node *n)
{
    const char *op = n->op;
    const bool is_div = strcmp(op, "Div") == 0, is_sub = strcmp(op, "Sub") == 0;
    const bool is_mul = strcmp(op, "Mul") == 0, is_add = strcmp(op, "Add") == 0;
    double x[3];
    bool by_channel;
    if (n->n_in != 2 || !(is_div || is_sub || is_mul || is_add) || !f->is_float)
        return false;
    const int at = strcmp(n->in[0], f->value) == 0 ? 1 : 0;
    if ((at == 0 && (is_div || is_sub)) || !get_numbers(f, n, at, x, &by_channel))
        return false;
    for (int c = 0; c < 3; c++) {
        if (is_div && !(x[c] > 0))
            return false;
        const double by = is_div ? 1 / x[c] : is_mul ? x[c] : 1;
        f->scale[c] *= by;
        f->shift[c] = f->shift[c] * by + (is_add ? x[c] : is_sub ? -x[c] : 0);
    }
    f->has_arithmetic = true;
    f->has_channels = f->has_channels || by_channel;
    f->has_last = f->has_last || (by_channel && f->is_last);
    return true;
}

static bool is_interpolation(const td_onnx_node *n)
{
    const td_onnx_attr *a = td_onnx_attr_find(n, "coordinate_transformation_mode");
    return strcmp(n->op, "Resize") == 0 &&
           !(a && a->kind == TD_ONNX_TEXT && strcmp(a->text, "tf_crop_and_resize") == 0);
}

/* takes the node if it prepares images; interpolation stays in the graph, between the others */
static bool take(finder *f, const td_onnx_node *n)
{
    if (n->n_out != 1 || n->n_in < 1)
        return false;
    if (is_interpolation(n))
        return f->is_float && !f->is_last && strcmp(n->in[0], f->value) == 0;
    const bool is_taken = strcmp(n->op, "Cast") == 0        ? take_cast(f, n)
                          : strcmp(n->op, "Transpose") == 0 ? take_transpose(f, n)
                          : strcmp(n->op, "Identity") == 0  ? true
                                                            : take_arithmetic(f, n);
    if (is_taken)
        f->p->nodes[f->p->n_nodes++] = n;
    return is_taken;
}

/* --- what they come to ------------------------------------------------------------------------ */

static bool is_in_range(const td_norm *n)
{
    for (int c = 0; c < 3; c++)
        if (!(n->mean[c] >= 0 && n->mean[c] <= 255 && n->std[c] >= 0.0255f && n->std[c] <= 255))
            return false;
    return true;
}

/* x, for pixels from 0 to 1, for pixels from 0 to 255; what float32 made of 0.485 is 0.485 */
static float settled(double x)
{
    char text[32];
    double near;
    snprintf(text, sizeof text, "%.6g", x);
    if (td_text_to_real(text, &near) && fabs(near - x) <= 2e-7 * fabs(x))
        x = near;
    return fabs(x) < 1e-7 ? 0 : (float)(255 * x); /* what rounding leaves of 0 */
}

/* the mean and deviation of pixels from 0 to 255 */
static bool find_norm(const finder *f, bool is_bytes, td_norm *out)
{
    double most = 0, top;
    for (int c = 0; c < 3; c++) {
        if (!(f->scale[c] > 0 && isfinite(f->scale[c])))
            return false;
        most = fmax(most, fmax(1 / f->scale[c], -f->shift[c] / f->scale[c]));
    }
    if (!is_bytes && !(f->has_arithmetic && (f->has_channels || 1 / f->scale[0] >= BYTES_FROM)))
        return false;
    top = is_bytes || most > UNIT_MOST ? 255 : 1;
    for (int c = 0; c < 3; c++) {
        out->mean[c] = settled(-f->shift[c] / f->scale[c] / top);
        out->std[c] = settled(1 / f->scale[c] / top);
    }
    return is_in_range(out);
}

/* leaves arithmetic in the graph */
static void keep_arithmetic(td_onnx_preparation *p)
{
    int n = 0;
    for (int i = 0; i < p->n_nodes; i++)
        if (strcmp(p->nodes[i]->op, "Cast") == 0 || strcmp(p->nodes[i]->op, "Transpose") == 0)
            p->nodes[n++] = p->nodes[i];
    p->n_nodes = n;
}

static void describe(const td_onnx_value *v, td_onnx_preparation *p)
{
    size_t at =
        (size_t)snprintf(p->text, sizeof p->text, p->is_last ? "%s [N,H,W,%d]" : "%s [N,%d,H,W]",
                         td_dtype_name(v->dtype), p->channels);
    for (int i = 0; i < p->n_nodes && at < sizeof p->text; i++)
        at += (size_t)snprintf(p->text + at, sizeof p->text - at, "%s%s", i ? ", " : ": ",
                               p->nodes[i]->op);
}

void td_onnx_find_preparation(const td_onnx *m, td_onnx_preparation *out)
{
    const td_onnx_value *v = m->inputs.at;
    *out = (td_onnx_preparation){ 0 };
    if (m->inputs.n != 1 || v->rank != 4)
        return;
    const bool is_bytes = v->dtype == TD_DT_U8;
    finder f = { .m = m, .p = out, .value = v->name, .scale = { 1, 1, 1 } };
    f.is_float = td_dtype_is_float(v->dtype);
    const bool is_first = v->dim[1].value == 3 || v->dim[1].value == 1;
    f.is_last = out->is_last = !is_first && (v->dim[3].value == 3 || v->dim[3].value == 1);
    out->channels = v->dim[out->is_last ? 3 : 1].value == 1 ? 1 : 3;
    for (int i = 0; i < TD_ONNX_PREPARATION_MAX; i++) {
        const td_onnx_node *n = reader_of(m, f.value, !f.is_last);
        if (!n || !take(&f, n))
            break;
        f.value = n->out[0];
    }
    const bool is_complete = f.is_float && !f.is_last;
    if (is_complete)
        out->has_norm = find_norm(&f, is_bytes, &out->norm);
    if (!is_complete || (!out->has_norm && (is_bytes || f.has_last)))
        out->n_nodes = 0;
    else if (!out->has_norm)
        keep_arithmetic(out);
    describe(v, out);
}

bool td_onnx_is_prepared(const td_onnx_preparation *p, const td_onnx_node *n)
{
    for (int i = 0; i < p->n_nodes; i++)
        if (p->nodes[i] == n)
            return true;
    return false;
}
