/*
 * operands.c -- operands and attributes of ONNX nodes
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "onnx_import/importer.h"

#define VALUES_BYTES_MAX ((size_t)1 << 23) /* of the numbers of a constant, as text */

/* many files have nodes without names, but each result has one */
static const char *name_of(const td_onnx_node *n)
{
    return *n->name || !n->n_out ? n->name : n->out[0];
}

td_status td_import_refuse(const td_importer *im, const char *what)
{
    return td_error(TD_EUNSUPPORTED, "'%s': node '%s' (%s): %s", im->what, name_of(im->node),
                    im->node->op, what);
}

td_status td_import_wrong(const td_importer *im, const char *what)
{
    return td_error(TD_EFORMAT, "'%s': node '%s' (%s): %s", im->what, name_of(im->node),
                    im->node->op, what);
}

static float float_of(const td_tensor *t, int64_t i)
{
    float x;
    memcpy(&x, (const char *)t->data + (size_t)i * sizeof x, sizeof x);
    return x;
}

/* how `tandem init` and a head of another size fill a trained parameter: as PyTorch does */
static td_param_attr trained(const td_importer *im, const td_type *t, int operand)
{
    const bool is_norm = strcmp(im->node->op, "BatchNormalization") == 0;
    double fan_in = 1;
    for (int i = 1; i < t->rank; i++)
        fan_in *= (double)t->dim[i];
    if (is_norm && operand > 2)
        return (td_param_attr){ .role = TD_ROLE_STAT,
                                .init = operand == 4 ? TD_INIT_ONES : TD_INIT_ZEROS,
                                .scale = 1 };
    if (t->rank == 4)
        return (td_param_attr){ .init = TD_INIT_NORMAL, .scale = sqrt(2 / fan_in) };
    if (t->rank == 2)
        return (td_param_attr){ .init = TD_INIT_UNIFORM, .scale = 1 / sqrt(fan_in) };
    return (td_param_attr){ .init = is_norm && operand == 1 ? TD_INIT_ONES : TD_INIT_ZEROS,
                            .scale = 1 };
}

/* how PyTorch's exporter calls a tensor; NULL: the file does not say */
static const char *kind_of(const td_importer *im, const char *name)
{
    const td_onnx_value *v = td_map_get(&im->declared, name);
    return v ? v->kind : NULL;
}

/* a tensor of a module that is no parameter, such as a filter that blurs */
static bool is_buffer(const td_importer *im, const char *name)
{
    const char *kind = kind_of(im, name);
    return kind && strcmp(kind, "PARAMETER") != 0;
}

/* "layer.gain", "gain", but not "val_3", "scalar_tensor_default", "onnx::Mul_12", "/Constant" */
static bool is_name_of_module(const char *name)
{
    const size_t n = strlen(name);
    const char *digits = strrchr(name, '_');
    if (n == 0 || strpbrk(name, ":/") || (*name >= '0' && *name <= '9'))
        return false;
    return strchr(name, '.') ||
           !(strstr(name, "default") || (digits && strspn(digits + 1, "0123456789") > 0));
}

/* by the names and notes of PyTorch's exporters */
static bool is_parameter(const td_importer *im, const char *name)
{
    const char *kind = kind_of(im, name);
    return im->has_kinds ? kind && strcmp(kind, "PARAMETER") == 0
                         : strcmp(im->m->producer, "pytorch") == 0 && is_name_of_module(name);
}

static bool is_plain_norm(const td_importer *im, const td_tensor *t, int operand)
{
    const bool is_scale = operand == 1;
    if (!strstr(im->node->op, "Normalization") || operand < 1 || operand > 2 ||
        t->dtype != TD_DT_F32 || is_parameter(im, t->name))
        return false;
    for (int64_t i = 0; i < (int64_t)(t->n_bytes / sizeof(float)); i++) {
        const float x = float_of(t, i);
        if (x < is_scale || x > is_scale)
            return false;
    }
    return true;
}

/* In PyTorch's files no Constant is a parameter, and neither are the ones or zeros of a norm that
   has no scale and bias. */
static bool is_plain(const td_importer *im, const td_tensor *t, int operand)
{
    if (strcmp(im->m->producer, "pytorch") != 0)
        return false;
    return td_map_has(&im->folder.fixed, t->name) || is_plain_norm(im, t, operand);
}

bool td_import_is_gate(const td_importer *im, int i)
{
    const td_tensor *t = i < im->node->n_in ? td_map_get(&im->tensors, im->node->in[i]) : NULL;
    return t && !td_map_has(&im->folder.fixed, t->name) && is_parameter(im, t->name);
}

static td_status add_param(td_onnx_graph *g, const td_tensor *t)
{
    TD_TRY(td_reserve(&g->params, &g->cap_params, g->n_params + 1, sizeof *g->params));
    g->params[g->n_params++] = *t;
    return TD_OK;
}

/* adds a parameter of this name; half tensors become f32 parameters and a cast, since programs take
   parameters as f32 */
static td_status add_leaf(td_importer *im, const td_tensor *t, int operand, const char *name,
                          td_value **out)
{
    td_type type = td_type_of(td_dtype_is_half(t->dtype) ? TD_DT_F32 : t->dtype, 0, NULL);
    td_param_attr attr = { .role = TD_ROLE_STAT, .scale = 1 }; /* never trained */
    if (t->rank > TD_RANK_MAX)
        return td_import_wrong(im, "a tensor has too many dimensions");
    type.rank = t->rank;
    for (int i = 0; i < t->rank; i++)
        type.dim[i] = t->dim[i];
    if (!im->o->is_model) {
        *out = td_cast(im->b, td_emit_leaf(im->b, &td_op_param, &attr, name, &type), t->dtype);
        return TD_OK;
    }
    if (type.dtype != TD_DT_F32)
        return td_import_refuse(im, "an operand that is neither f32 nor a half type");
    if (!is_buffer(im, name) && !is_plain(im, t, operand))
        attr = trained(im, &type, operand);
    *out = td_emit_leaf(im->b, &td_op_param, &attr, name, &type);
    td_tensor of_param = *t;
    of_param.name = (*out)->name ? (*out)->name : t->name; /* NULL: the builder has failed */
    return add_param(im->out, &of_param);
}

td_status td_import_leaf_of(td_importer *im, const td_tensor *t, int operand, td_value **out)
{
    TD_TRY(add_leaf(im, t, operand, t->name, out));
    return td_map_set(&im->values, t->name, *out);
}

/* --- constants -------------------------------------------------------------------------------- */

/* adds "V@N", the element at `i` of a tensor and how often it is there; returns the next i */
static int64_t add_run(const td_tensor *t, int64_t i, int64_t count, td_text *out)
{
    const size_t each = td_dtype_bytes(t->dtype);
    const char *bytes = t->data, *first = bytes + (size_t)i * each;
    int64_t n = 1, integer;
    float real;
    while (i + n < count && memcmp(first, first + (size_t)n * each, each) == 0)
        n++;
    if (t->dtype == TD_DT_F32) {
        memcpy(&real, first, sizeof real);
        td_text_add(out, "%s%.9g", i ? ":" : "", (double)real);
    } else {
        memcpy(&integer, first, sizeof integer);
        td_text_add(out, "%s%lld", i ? ":" : "", (long long)integer);
    }
    if (n > 1)
        td_text_add(out, "@%lld", (long long)n);
    return i + n;
}

/* is a row of -inf only?  The softmax of a sum with it is not a number */
static bool masks_a_row(const td_tensor *t)
{
    const int64_t columns = t->dtype == TD_DT_F32 && t->rank > 0 ? t->dim[t->rank - 1] : 0;
    int64_t found = 0;
    for (int64_t i = 0; columns > 1 && i < (int64_t)(t->n_bytes / sizeof(float)); i++) {
        const float x = float_of(t, i);
        found = i % columns ? found : 0;
        found += isinf(x) && x < 0;
        if (found == columns)
            return true;
    }
    return false;
}

/*
 * The mask of an attention is no parameter: it has infinities, or 0 and one other number of at
 * most -100.
 */
static bool is_mask(const td_tensor *t)
{
    bool has_infinity = false, has_zero = false, is_pair = true;
    float least = 0;
    for (int64_t i = 0; t->dtype == TD_DT_F32 && i < (int64_t)(t->n_bytes / sizeof least); i++) {
        const float x = float_of(t, i);
        if (isnan(x))
            return false;
        has_infinity = has_infinity || isinf(x);
        if (x < 0 && least >= 0)
            least = x;
        has_zero = has_zero || !(x < 0 || x > 0);
        is_pair = is_pair && !(x > 0) && (!(x < 0) || !(x < least || x > least));
    }
    return has_infinity || (is_pair && has_zero && least <= -100);
}

td_status td_import_constant(td_importer *im, const td_tensor *t, td_value **out)
{
    const td_type type = td_type_of(t->dtype, t->rank, t->dim);
    const int64_t count = td_type_count(&type);
    td_text text = { 0 };
    int64_t i = 0;
    if (t->rank > TD_RANK_MAX || (t->dtype != TD_DT_F32 && t->dtype != TD_DT_I64))
        return td_import_refuse(im, "a computed operand of another type, or too many dimensions");
    if (!td_onnx_folder_read(&im->folder, count))
        return td_import_refuse(im, "computed operands of too many elements in all");
    if (masks_a_row(t))
        return td_import_refuse(im, "a row of -inf only, whose softmax is not a number");
    while (i < count && text.len <= VALUES_BYTES_MAX)
        i = add_run(t, i, count, &text);
    td_status st = td_text_status(&text);
    if (st == TD_OK && i < count)
        st = td_import_refuse(im, "a computed operand of too many different numbers");
    if (st == TD_OK) {
        const td_constant_attr a = { .type = td_build_type_text(im->b, &type),
                                     .values = td_text_get(&text) };
        *out = td_emit_n(im->b, &td_op_constant, &a, 0, NULL, NULL);
    }
    td_text_release(&text);
    return st;
}

/* --- operands --------------------------------------------------------------------------------- */

/* operand i as a value of the graph; a tensor becomes a parameter when it is first read */
td_status td_import_value_at(td_importer *im, int i, td_value **out)
{
    const char *name = i < im->node->n_in ? im->node->in[i] : "";
    const td_tensor *t = td_map_get(&im->tensors, name);
    *out = td_map_get(&im->values, name);
    if (*out)
        return TD_OK;
    if (td_map_has(&im->wide, name))
        return td_import_refuse(im, "an operand of more than five dimensions");
    if (!t)
        return td_import_wrong(im, "an operand is missing");
    if (t->dtype == TD_DT_F32 &&
        (td_onnx_is_computed(&im->folder, name) || (im->o->is_model && is_mask(t)))) {
        TD_TRY(td_import_constant(im, t, out));
        return td_map_set(&im->values, name, *out);
    }
    return td_import_leaf_of(im, t, i, out);
}

td_status td_import_values_of(td_importer *im, int least, int most, td_value **out)
{
    int n = im->node->n_in;
    if (n < least || n > most || n > TD_IN_MAX)
        return td_import_wrong(im, "an unsupported number of operands");
    for (int i = 0; i < n; i++)
        TD_TRY(td_import_value_at(im, i, &out[i]));
    return TD_OK;
}

/*
 * Exporters write equal tensors once, so the batch norms of a network that is not yet trained read
 * the same ones and zeros as scale and variance, as bias and mean.  Training gives each other
 * values: each batch norm gets parameters of its own, which are named after its result.
 */
static td_status own_leaf(td_importer *im, const td_tensor *t, int operand, td_value **out)
{
    static const char *const part[] = { "", "weight", "bias", "running_mean", "running_var" };
    td_text name = { 0 };
    td_text_add(&name, "%s.%s", im->node->out[0], part[operand]);
    td_status st = td_text_status(&name);
    if (st == TD_OK)
        st = add_leaf(im, t, operand, td_text_get(&name), out);
    td_text_release(&name);
    return st;
}

/* by others than Identity, whose result is another parameter */
static int count_reads(const td_onnx *m, const char *name)
{
    int n = 0;
    for (const td_onnx_node *at = m->nodes; at < m->nodes + m->n_nodes; at++)
        for (int i = 0; i < at->n_in; i++)
            n += strcmp(at->in[i], name) == 0 && strcmp(at->op, "Identity") != 0;
    return n;
}

/* operand i of a batch norm, 1 to 4 */
static td_status norm_param(td_importer *im, int i, td_value **out)
{
    const char *name = im->node->in[i];
    const td_tensor *t = td_map_get(&im->tensors, name);
    const bool is_shared = im->o->is_model && im->node->n_out > 0 && t &&
                           !td_onnx_is_computed(&im->folder, name) && count_reads(im->m, name) > 1;
    return is_shared ? own_leaf(im, t, i, out) : td_import_value_at(im, i, out);
}

td_status td_import_norm_operands(td_importer *im, td_value **out)
{
    if (im->node->n_in != 5)
        return td_import_wrong(im, "an unsupported number of operands");
    TD_TRY(td_import_value_at(im, 0, &out[0]));
    for (int i = 1; i < 5; i++)
        TD_TRY(norm_param(im, i, &out[i]));
    return TD_OK;
}

td_status td_import_tensor_at(const td_importer *im, int i, td_dtype dtype, int rank,
                              const td_tensor **out)
{
    *out = i < im->node->n_in ? td_map_get(&im->tensors, im->node->in[i]) : NULL;
    if (!*out || (*out)->dtype != dtype || (*out)->rank != rank)
        return td_import_refuse(im, "an operand is not a constant of the expected type");
    return TD_OK;
}

/* operand i, a constant i64 [n], n <= room */
td_status td_import_ints_at(const td_importer *im, int i, int room, int *n, int64_t *out)
{
    const td_tensor *t;
    TD_TRY(td_import_tensor_at(im, i, TD_DT_I64, 1, &t));
    if (t->dim[0] > room)
        return td_import_refuse(im, "a list of integers is too long");
    *n = (int)t->dim[0];
    if (t->n_bytes)
        memcpy(out, t->data, t->n_bytes);
    return TD_OK;
}

td_status td_import_attr_int(const td_importer *im, const char *name, int64_t otherwise,
                             int64_t *out)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, name);
    *out = a ? a->i : otherwise;
    return a && a->kind != TD_ONNX_INT ? td_import_wrong(im, "an attribute is not an integer")
                                       : TD_OK;
}

/* an attribute that only has one supported value */
td_status td_import_attr_must(const td_importer *im, const char *name, int64_t value)
{
    int64_t found;
    TD_TRY(td_import_attr_int(im, name, value, &found));
    return found == value ? TD_OK : td_import_refuse(im, "an attribute has an unsupported value");
}

double td_import_attr_float(const td_importer *im, const char *name, double otherwise)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, name);
    return a && a->kind == TD_ONNX_FLOAT ? (double)a->f : otherwise;
}

/* integers from `least` to 2^20, or the default, for the last `count` of height and width */
static td_status attr_sides(const td_importer *im, const char *name, int count, int64_t least,
                            int64_t *out)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, name);
    if (!a)
        return TD_OK;
    if (a->kind != TD_ONNX_INTS || a->n != count)
        return td_import_wrong(im, "an attribute has the wrong number of integers");
    for (int i = 0; i < count; i++) {
        if (a->ints[i] < least || a->ints[i] > 1 << 20)
            return td_import_wrong(im, "a window, stride or dilation is out of range");
        out[2 - count + i] = a->ints[i];
    }
    return TD_OK;
}

/* top, left, bottom, right, or left and right */
static td_status attr_pads(const td_importer *im, int count, td_onnx_window *v)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, "pads");
    if (!a)
        return TD_OK;
    if (a->kind != TD_ONNX_INTS || a->n != 2 * count)
        return td_import_wrong(im, "an attribute has the wrong number of integers");
    for (int i = 0; i < 2 * count; i++)
        if (a->ints[i] < 0 || a->ints[i] > TD_PAD_MAX)
            return td_import_wrong(im, "padding is out of range");
    for (int i = 0; i < count; i++) {
        v->begin[2 - count + i] = a->ints[i];
        v->end[2 - count + i] = a->ints[count + i];
    }
    return TD_OK;
}

bool td_import_attr_is(const td_importer *im, const char *name, const char *text)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, name);
    return a && a->kind == TD_ONNX_TEXT && strcmp(a->text, text) == 0;
}

/* the padding of axis i so that there is one window for each stride */
static void pad_same(td_onnx_window *v, int i, int64_t side, bool is_upper)
{
    const int64_t reach = (v->kernel[i] - 1) * v->dilation[i] + 1;
    const int64_t total =
        ((side + v->stride[i] - 1) / v->stride[i] - 1) * v->stride[i] + reach - side;
    const int64_t less = total > 0 ? total / 2 : 0, more = total > 0 ? total - less : 0;
    v->begin[i] = is_upper ? less : more;
    v->end[i] = is_upper ? more : less;
}

td_status td_import_window(const td_importer *im, const td_type *x, bool is_signal,
                           const int64_t *kernel, td_onnx_window *v)
{
    const int count = is_signal ? 1 : 2;
    *v = (td_onnx_window){ .stride = { 1, 1 }, .dilation = { 1, 1 } };
    if (x->rank != 4)
        return td_import_wrong(im, "the images have not four dimensions");
    for (int i = 0; i < 2; i++)
        v->kernel[i] = kernel ? kernel[i] : i < 2 - count;
    TD_TRY(attr_sides(im, "kernel_shape", count, 1, v->kernel));
    TD_TRY(attr_sides(im, "strides", count, 1, v->stride));
    TD_TRY(attr_sides(im, "dilations", count, 1, v->dilation));
    for (int i = 0; i < 2; i++) {
        if (kernel && kernel[i] != v->kernel[i])
            return td_import_wrong(im, "kernel_shape differs from the filter's");
        if (v->kernel[i] < 1 || v->kernel[i] > 1 << 20)
            return td_import_wrong(im, "there is no kernel_shape, or it is out of range");
    }
    if (!td_onnx_attr_find(im->node, "auto_pad") || td_import_attr_is(im, "auto_pad", "NOTSET"))
        return attr_pads(im, count, v);
    if (td_import_attr_is(im, "auto_pad", "VALID"))
        return TD_OK;
    const bool is_upper = td_import_attr_is(im, "auto_pad", "SAME_UPPER");
    if (!is_upper && !td_import_attr_is(im, "auto_pad", "SAME_LOWER"))
        return td_import_refuse(im, "auto_pad other than NOTSET, VALID, SAME_UPPER and SAME_LOWER");
    for (int i = 0; i < 2; i++)
        pad_same(v, i, x->dim[2 + i], is_upper);
    return TD_OK;
}

static int64_t divisor(int64_t a, int64_t b)
{
    return b ? divisor(b, a % b) : a;
}

td_value *td_import_padded(td_importer *im, td_value *x, int axis, int64_t before, int64_t after,
                           int mode, double value)
{
    const td_pad_attr a = { axis, (int)before, (int)after, mode, value };
    return before || after ? td_emit(im->b, &td_op_pad, &a, x) : x;
}

td_status td_import_square(td_importer *im, td_onnx_window *v, double value, td_value **x,
                           td_onnx_square *out)
{
    const int64_t least = v->begin[0] < v->begin[1] ? v->begin[0] : v->begin[1];
    *out = (td_onnx_square){ .stride = divisor(v->stride[0], v->stride[1]) };
    const bool is_even = v->begin[0] == v->begin[1] && v->end[0] == v->end[1] &&
                         v->end[0] >= v->begin[0] && v->end[0] <= 64;
    const bool wide[2] = { v->kernel[0] > 1, v->kernel[1] > 1 };
    if (wide[0] && wide[1] && v->dilation[0] != v->dilation[1])
        return td_import_refuse(im, "different dilations of height and width");
    out->dilation = wide[0] ? v->dilation[0] : wide[1] ? v->dilation[1] : 1;
    out->pad = is_even ? v->begin[0] : v->end[0] < least || v->end[1] < least ? 0 : least;
    out->pad = out->pad > 64 ? 0 : out->pad;
    out->pad_extra = is_even ? v->end[0] - v->begin[0] : 0;
    const td_type t = td_value_type(*x);
    for (int i = 0; i < 2; i++) {
        const int64_t reach = (v->kernel[i] - 1) * v->dilation[i] + 1;
        const int64_t room = t.dim[2 + i] + v->begin[i] + v->end[i] - reach;
        if (room < 0)
            return td_import_wrong(im, "the window is larger than the padded image");
        out->count[i] = room / v->stride[i] + 1;
        out->step[i] = v->stride[i] / out->stride;
        if (!is_even)
            *x = td_import_padded(im, *x, 2 + i, v->begin[i] - out->pad, v->end[i] - out->pad,
                                  TD_PAD_CONSTANT, value);
    }
    return out->stride > 64 || out->dilation > 64
               ? td_import_refuse(im, "strides or dilations above 64")
               : TD_OK;
}

td_value *td_import_stepped(td_importer *im, td_value *y, const td_onnx_square *s)
{
    for (int i = 0; i < 2; i++) {
        const td_slice_attr a = { 2 + i, 0, s->count[i], s->step[i] };
        if (s->step[i] > 1)
            y = td_emit(im->b, &td_op_slice, &a, y);
    }
    return y;
}

/* --- types ------------------------------------------------------------------------------------ */

static td_status check_type(const td_importer *im, const td_onnx_value *v, const td_type *t)
{
    const bool are_floats = td_dtype_is_float(v->dtype) && td_dtype_is_float(t->dtype);
    bool same = (v->dtype == t->dtype || (im->o->is_model && are_floats)) && v->rank == t->rank;
    for (int i = 0; same && i < t->rank; i++)
        if (v->dim[i].value >= 0)
            same = v->dim[i].value == t->dim[i];
        else if (!im->o->is_model && v->dim[i].param && strcmp(v->dim[i].param, "N") == 0)
            same = t->dim[i] == im->o->batch;
    if (same)
        return TD_OK;
    td_text text = { 0 };
    td_type_print(t, &text);
    td_status st =
        td_error(TD_EFORMAT, "'%s': '%s' does not have its declared type and shape, but %s",
                 im->what, v->name, td_text_get(&text));
    td_text_release(&text);
    return st;
}

td_status td_import_check_declared(const td_importer *im, const char *name, const td_type *t)
{
    const td_onnx_value *v = td_map_get(&im->declared, name);
    if (im->o->is_model && (!v || !v->dtype))
        return TD_OK;
    if (!v)
        return td_error(TD_EFORMAT, "'%s': no type is declared for '%s'", im->what, name);
    return check_type(im, v, t);
}

td_status td_import_result(td_importer *im, int i, td_value *v)
{
    if (!td_build_ok(im->b))
        return TD_EFORMAT; /* the builder has set the message */
    const td_type t = td_value_type(v);
    TD_TRY(td_import_check_declared(im, im->node->out[i], &t));
    return td_map_set(&im->values, im->node->out[i], v);
}
