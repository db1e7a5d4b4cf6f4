/*
 * test_golden_ops.c -- every op's values and gradients against PyTorch in float64
 * (tests/golden/ops/README.md)
 *
 * Each case is built as  loss = sum(y dy)  with its operands as parameters, compiled, and run: on
 * the reference device in float64 and float32, and on the cpu device, whatever kernels that takes;
 * ends of blocks with squeeze-excite layers there in mixed precision too.
 */
/* ctest: timeout 300 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/graph.h"
#include "support/device.h"
#include "support/expect.h"
#include "support/golden.h"
#include "tandem/program.h"

#define OPERANDS_MAX 8

typedef struct {
    const char *op;
    const char *operand[OPERANDS_MAX]; /* in the op's order */
} op_row;

static const op_row op_rows[] = {
    { "conv2d", { "x", "w" } },
    { "linear", { "x", "w", "b" } },
    { "batch_norm", { "x", "gamma", "beta" } },
    { "batch_norm_infer", { "x", "gamma", "beta", "mean", "var" } },
    { "relu", { "x" } },
    { "relu6", { "x" } },
    { "sigmoid", { "x" } },
    { "leaky_relu", { "x" } },
    { "elu", { "x" } },
    { "clip", { "x" } },
    { "hardsigmoid", { "x" } },
    { "silu", { "x" } },
    { "hardswish", { "x" } },
    { "softplus", { "x" } },
    { "mish", { "x" } },
    { "gelu", { "x" } },
    { "gelu_tanh", { "x" } },
    { "tanh", { "x" } },
    { "exp", { "x" } },
    { "log", { "x" } },
    { "sqrt", { "x" } },
    { "reciprocal", { "x" } },
    { "pow", { "x" } },
    { "abs", { "x" } },
    { "erf", { "x" } },
    { "max_pool2d", { "x" } },
    { "avg_pool2d", { "x" } },
    { "global_avg_pool", { "x" } },
    { "add", { "a", "b" } },
    { "mul", { "a", "b" } },
    { "sub", { "a", "b" } },
    { "div", { "a", "b" } },
    { "max", { "a", "b" } },
    { "min", { "a", "b" } },
    { "concat", { "x0", "x1", "x2", "x3", "x4" } },
    { "resize_nearest", { "x" } },
    { "resize", { "x" } },
    { "pad", { "x" } },
    { "conv_transpose2d", { "x", "w" } },
    { "group_norm", { "x", "gamma", "beta" } },
    { "sum", { "x" } },
    { "mean", { "x" } },
    { "gated_add", { "x", "gate", "z" } },
    { "squeeze_excite", { "x", "w1", "b1", "w2", "b2" } },
    { "squeeze_excite_end", { "x", "w", "w1", "b1", "w2", "b2", "z" } },
    { "softmax_cross_entropy", { "x" } },
};

typedef struct {
    const char *device;
    td_dtype dtype;
    double limit; /* largest difference over the largest entry */
    td_precision precision;
    const char *only; /* cases of this op; NULL: all */
} setting;

static const setting settings[] = {
    { "ref", TD_DT_F64, 1e-12, TD_PRECISION_FP32, NULL },
    { "ref", TD_DT_F32, 1e-5, TD_PRECISION_FP32, NULL },
    { "cpu", TD_DT_F32, 1e-5, TD_PRECISION_FP32, NULL },
    { "cpu", TD_DT_F32, 4e-3, TD_PRECISION_FP16, "squeeze_excite_end" },
    { "cpu", TD_DT_F32, 3e-2, TD_PRECISION_BF16, "squeeze_excite_end" },
};

typedef struct {
    const td_json *entry;
    const char *name, *op;
    td_tensors *tensors;
    const setting *how;
    td_builder *b;
    void *dy, *target; /* bound while the program lives */
} test_case;

/* --- the case's numbers ----------------------------------------------------------------------- */

/* the tensor of `group` ("inputs") under `name`, NULL when the case has none */
static const td_tensor *tensor(const test_case *c, const char *group, const char *name)
{
    const char *key = NULL;
    const td_json *members = td_json_get(c->entry, group);
    if (!members || td_json_text(members, name, &key) != TD_OK)
        return NULL;
    const td_tensor *t = td_tensors_get(c->tensors, key);
    if (!t)
        fail_msg("%s: '%s' is not in its file", c->name, key);
    return t;
}

static int64_t count_of(const td_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

static double value_of(td_dtype d, const void *data, int64_t i)
{
    return d == TD_DT_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

/* the tensor's elements as the setting's dtype; td_free */
static void *converted(const test_case *c, const td_tensor *t)
{
    const td_dtype d = c->how->dtype;
    void *data = td_alloc((size_t)count_of(t), td_dtype_bytes(d));
    assert_non_null(data);
    for (int64_t i = 0; i < count_of(t); i++) {
        if (d == TD_DT_F64)
            ((double *)data)[i] = value_of(t->dtype, t->data, i);
        else
            ((float *)data)[i] = (float)value_of(t->dtype, t->data, i);
    }
    return data;
}

static double attribute(const test_case *c, const char *name, double otherwise)
{
    double v = otherwise;
    const td_json *attrs = td_json_get(c->entry, "attrs");
    return td_json_number(attrs, name, &v) == TD_OK ? v : otherwise;
}

/* "stride=2, pad=1, mode=edge" */
static void attribute_text(const test_case *c, char *out, size_t n_bytes)
{
    const td_json *attrs = td_json_get(c->entry, "attrs");
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < td_json_count(attrs); i++) {
        const td_json *value = td_json_member(attrs, i);
        double number = 0;
        bool truth = false;
        const char *text = NULL;
        if (td_json_kind_of(value) == TD_JSON_BOOL)
            expect_ok(td_json_as_bool(value, &truth));
        else if (td_json_kind_of(value) == TD_JSON_TEXT)
            expect_ok(td_json_text(attrs, td_json_key(attrs, i), &text));
        else
            expect_ok(td_json_as_number(value, &number));
        len += (size_t)snprintf(out + len, n_bytes - len, "%s%s=", i ? ", " : "",
                                td_json_key(attrs, i));
        if (td_json_kind_of(value) == TD_JSON_BOOL)
            text = truth ? "true" : "false";
        len += text ? (size_t)snprintf(out + len, n_bytes - len, "%s", text)
                    : (size_t)snprintf(out + len, n_bytes - len, "%.17g", number);
        assert_true(len < n_bytes);
    }
}

/* --- building --------------------------------------------------------------------------------- */

static td_value *parameter(const test_case *c, const char *group, const char *name, const char *as)
{
    const td_tensor *t = tensor(c, group, name);
    return t ? td_param(c->b, as, c->how->dtype, t->rank, t->dim, NULL) : NULL;
}

static td_value *batch_norm(const test_case *c, td_value **in, const char *attrs)
{
    td_value *mean = parameter(c, "inputs", "running_mean_before", "running_mean");
    td_value *var = parameter(c, "inputs", "running_var_before", "running_var");
    td_value *y = td_batch_norm_train(c->b, in[0], in[1], in[2], mean, var, attrs);
    td_output(c->b, "mean", y->producer->out[1]);
    td_output(c->b, "var", y->producer->out[2]);
    return y;
}

/* q = (1 - smoothing) target + smoothing / K, and the mean of the rows' losses */
static td_value *cross_entropy(test_case *c, td_value **in)
{
    const td_tensor *t = tensor(c, "inputs", "target");
    const double s = attribute(c, "smoothing", 0), K = (double)t->dim[1];
    c->target = converted(c, t);
    for (int64_t i = 0; i < count_of(t); i++) {
        const double q = (1 - s) * value_of(c->how->dtype, c->target, i) + s / K;
        if (c->how->dtype == TD_DT_F64)
            ((double *)c->target)[i] = q;
        else
            ((float *)c->target)[i] = (float)q;
    }
    td_value *q = td_input(c->b, "target", td_type_of(c->how->dtype, t->rank, t->dim));
    return td_mean(c->b, td_softmax_cross_entropy(c->b, in[0], q));
}

/* relu(squeeze_excite(conv2d(x, w)) + z); pass `gates` makes one op of all after the gate */
static td_value *squeeze_excite_end(const test_case *c, td_value **in, const char *attrs)
{
    td_value *branch[] = { td_conv2d(c->b, in[0], in[1], NULL), in[2], in[3], in[4], in[5] };
    td_value *y = NULL;
    td_apply(c->b, "squeeze_excite", 5, branch, attrs, 1, &y);
    return td_relu(c->b, td_add(c->b, y, in[6]));
}

static td_value *apply(test_case *c, int n_in, td_value **in)
{
    char attrs[256];
    td_value *y[4] = { NULL };
    attribute_text(c, attrs, sizeof attrs);
    if (strcmp(c->op, "batch_norm") == 0)
        return batch_norm(c, in, attrs);
    if (strcmp(c->op, "softmax_cross_entropy") == 0)
        return cross_entropy(c, in);
    if (strcmp(c->op, "squeeze_excite_end") == 0)
        return squeeze_excite_end(c, in, attrs);
    if (strcmp(c->op, "resize_nearest") == 0) {
        const td_type x = td_value_type(in[0]);
        const int by = (int)attribute(c, "scale", 1);
        return td_resize_nearest(c->b, in[0], (int)x.dim[2] * by, (int)x.dim[3] * by);
    }
    td_apply(c->b, c->op, n_in, in, attrs[0] ? attrs : NULL, strcmp(c->op, "max_pool2d") ? 1 : 2,
             y);
    return y[0];
}

static const op_row *row_of(const char *op)
{
    for (size_t i = 0; i < sizeof op_rows / sizeof op_rows[0]; i++)
        if (strcmp(op_rows[i].op, op) == 0)
            return &op_rows[i];
    fail_msg("op '%s' of the golden files is not known here", op);
    return NULL;
}

static td_graph *build(test_case *c)
{
    const op_row *row = row_of(c->op);
    td_value *in[OPERANDS_MAX];
    td_graph *g = NULL;
    int n_in = 0;
    c->b = td_build_begin();
    assert_non_null(c->b);
    for (; row->operand[n_in] && tensor(c, "inputs", row->operand[n_in]); n_in++)
        in[n_in] = parameter(c, "inputs", row->operand[n_in], row->operand[n_in]);

    td_value *y = apply(c, n_in, in);
    td_value *dy = td_input(c->b, "dy", td_value_type(y));
    td_value *loss = td_sum(c->b, td_mul(c->b, y, dy));
    td_output(c->b, "y", y);
    for (int i = 0; i < n_in; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "d%s", row->operand[i]);
        if (tensor(c, "grads", name))
            td_output(c->b, name, td_gradient(c->b, loss, in[i]));
    }
    expect_ok(td_build_end(c->b, &g));
    return g;
}

/* --- running ---------------------------------------------------------------------------------- */

static void set_parameter(const test_case *c, td_program *p, const char *input, const char *param)
{
    void *data = converted(c, tensor(c, "inputs", input));
    expect_ok(td_program_set(p, param, data));
    td_free(data);
}

static void compare(const test_case *c, const char *name, const td_tensor *wanted,
                    const void *found)
{
    double most = 0, gap = 0;
    for (int64_t i = 0; i < count_of(wanted); i++) {
        const double w = value_of(wanted->dtype, wanted->data, i);
        const double d = fabs(w - value_of(c->how->dtype, found, i));
        most = fmax(most, fabs(w));
        gap = isnan(d) ? INFINITY : fmax(gap, d);
    }
    if (!(gap <= c->how->limit * (most > 0 ? most : 1)))
        fail_msg("%s on %s in %s: %s differs by %.3g, its largest entry is %.3g", c->name,
                 c->how->device, td_dtype_name(c->how->dtype), name, gap, most);
}

static void compare_group(const test_case *c, td_program *p, const char *group)
{
    const td_json *members = td_json_get(c->entry, group);
    for (size_t i = 0; i < td_json_count(members); i++) {
        const char *name = td_json_key(members, i);
        const td_tensor *wanted = tensor(c, group, name);
        if (strncmp(name, "running_", 8) == 0) {
            void *found = td_alloc((size_t)count_of(wanted), td_dtype_bytes(c->how->dtype));
            assert_non_null(found);
            expect_ok(td_program_get(p, name, found));
            compare(c, name, wanted, found);
            td_free(found);
        } else {
            td_type type;
            const void *found = td_program_output(p, name, &type);
            assert_non_null(found);
            assert_int_equal(td_type_count(&type), count_of(wanted));
            compare(c, name, wanted, found);
        }
    }
}

static void run_case(test_case *c)
{
    td_device *device = NULL;
    td_program *p = NULL;
    td_graph *g = build(c);
    const op_row *row = row_of(c->op);
    expect_ok(td_test_device_open(c->how->device, &device));
    const td_amp_opts amp = { .precision = c->how->precision, .is_silent = true };
    expect_ok(td_compile(g, device, &(td_compile_opts){ .amp = &amp }, &p));
    for (int i = 0; row->operand[i] && tensor(c, "inputs", row->operand[i]); i++)
        set_parameter(c, p, row->operand[i], row->operand[i]);
    if (strcmp(c->op, "batch_norm") == 0) {
        set_parameter(c, p, "running_mean_before", "running_mean");
        set_parameter(c, p, "running_var_before", "running_var");
    }
    c->dy = converted(c, tensor(c, "inputs", "dy"));
    expect_ok(td_program_bind(p, "dy", c->dy));
    if (c->target)
        expect_ok(td_program_bind(p, "target", c->target));
    expect_ok(td_program_run(p));
    compare_group(c, p, "outputs");
    compare_group(c, p, "grads");
    td_program_free(p);
    td_device_close(device);
    td_graph_free(g);
    td_free(c->dy);
    td_free(c->target);
}

static void run_setting(const setting *how)
{
    td_json *index = td_golden_json("ops", "index.json");
    const td_json *cases = td_json_get(index, "cases");
    assert_true(td_json_count(cases) > 0);
    for (size_t i = 0; i < td_json_count(cases); i++) {
        test_case c = { .entry = td_json_at(cases, i), .how = how };
        c.name = td_golden_text(c.entry, "name");
        c.op = td_golden_text(c.entry, "op");
        if (how->only && strcmp(how->only, c.op) != 0)
            continue;
        c.tensors = td_golden_tensors("ops", td_golden_text(c.entry, "file"));
        run_case(&c);
        td_tensors_free(c.tensors);
    }
    td_json_free(index);
}

static void agrees_in_f64(void **state)
{
    (void)state;
    run_setting(&settings[0]);
}

static void agrees_in_f32(void **state)
{
    (void)state;
    run_setting(&settings[1]);
}

static void agrees_on_the_cpu(void **state)
{
    (void)state;
    run_setting(&settings[2]);
}

static void agrees_in_fp16(void **state)
{
    (void)state;
    run_setting(&settings[3]);
}

static void agrees_in_bf16(void **state)
{
    (void)state;
    run_setting(&settings[4]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_in_f64),     cmocka_unit_test(agrees_in_f32),
        cmocka_unit_test(agrees_on_the_cpu), cmocka_unit_test(agrees_in_fp16),
        cmocka_unit_test(agrees_in_bf16),
    };
    td_golden_require("ops");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
