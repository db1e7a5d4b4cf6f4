/*
 * test_golden_optimizers.c -- five optimiser steps on a small state against optimizers.json, of
 * SGD and RMSprop in one folder, of Adam, AdamW and LAMB in another
 *
 * Every parameter is a graph of its own: w, v <- sgd(w, v, g, lr), or an optimiser with a second
 * tensor a, with its group's decay.  Start and gradients come from the fill.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/build.h"
#include "ops/ops.h"
#include "support/device.h"
#include "support/expect.h"
#include "support/fill.h"
#include "support/golden.h"
#include "tandem/program.h"

static const char *const parts[] = { "classification", "optimizers" };

enum { N_PARTS = sizeof parts / sizeof *parts };

/* five steps of three roundings each: a few 1e-7 of the largest entry */
#define TOLERANCE 1e-6
#define N_MAX     4096 /* elements of a parameter */

static td_json *doc;
static td_tensors *tensors;

static void open_part(const char *part)
{
    doc = td_golden_json(part, "optimizers.json");
    tensors = td_golden_tensors(part, "optimizers.safetensors");
}

static void close_part(void)
{
    td_tensors_free(tensors);
    td_json_free(doc);
}

/* --- one parameter --------------------------------------------------------------------------- */

typedef struct {
    const char *run, *name, *device;
    td_dtype dtype;
    const td_op *op;
    double beta[2]; /* of adam and lamb */
    char attrs[160];
    int rank;
    int64_t dim[8], n;
} param_case;

static const td_tensor *stored(const param_case *c, int64_t step, const char *tail)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%lld.%s%s", c->run, (long long)step, c->name, tail);
    return td_tensors_get(tensors, name);
}

/* the fill as numbers of the case's type */
static void fill(const param_case *c, const char *name, void *out)
{
    float u[N_MAX];
    td_fill_range(td_golden_text(doc, "prefix"), name, -1, 1, c->n, u);
    for (int64_t i = 0; i < c->n; i++)
        if (c->dtype == TD_DT_F64)
            ((double *)out)[i] = (double)u[i];
        else
            ((float *)out)[i] = u[i];
}

static bool is_adam(const param_case *c)
{
    return c->op == &td_op_adam || c->op == &td_op_lamb;
}

static bool has_second(const param_case *c)
{
    return c->op != &td_op_sgd;
}

/* a scalar in the case's type, which stays where it is until the program ran */
static void bind_scalar(const param_case *c, td_program *p, const char *name, double x)
{
    static double doubles[3];
    static float floats[3];
    const int i = name[0] == 'l' ? 0 : name[4] - '0';
    doubles[i] = x;
    floats[i] = (float)x;
    expect_ok(td_program_bind(p, name, c->dtype == TD_DT_F64 ? (void *)&doubles[i] : &floats[i]));
}

static td_program *compile_step(const param_case *c, td_device *dev)
{
    td_graph *g;
    td_program *p;
    td_builder *b = td_build_begin();
    assert_non_null(b);
    td_value *w = td_param(b, "w", c->dtype, c->rank, c->dim, NULL);
    td_value *v = td_param(b, "v", c->dtype, c->rank, c->dim, "role=momentum");
    td_value *grad = td_input(b, "g", td_type_of(c->dtype, c->rank, c->dim));
    td_value *lr = td_input(b, "lr", td_type_of(c->dtype, 0, NULL));
    td_value *a =
        has_second(c) ? td_param(b, "a", c->dtype, c->rank, c->dim, "role=momentum") : NULL;
    if (is_adam(c))
        td_emit(b, c->op, td_build_attr(b, c->op, c->attrs), w, v, grad, lr, a,
                td_input(b, "rest1", td_type_of(c->dtype, 0, NULL)),
                td_input(b, "rest2", td_type_of(c->dtype, 0, NULL)));
    else if (a)
        td_emit(b, c->op, td_build_attr(b, c->op, c->attrs), w, v, grad, lr, a);
    else
        td_sgd(b, w, v, grad, lr, c->attrs);
    expect_ok(td_build_end(b, &g));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ 0 }, &p));
    td_graph_free(g);
    return p;
}

static void check(const param_case *c, td_program *p, const char *param, const td_tensor *wanted,
                  int64_t step)
{
    double found[N_MAX], largest = 0, worst = 0;
    if (!wanted)
        return;
    assert_int_equal(wanted->n_bytes, (size_t)c->n * sizeof(float));
    expect_ok(td_program_get(p, param, found));
    for (int64_t i = 0; i < c->n; i++) {
        double x = c->dtype == TD_DT_F64 ? found[i] : (double)((const float *)found)[i];
        double y = (double)((const float *)wanted->data)[i];
        largest = fmax(largest, fabs(y));
        worst = isnan(x) ? (double)INFINITY : fmax(worst, fabs(x - y));
    }
    if (!(worst <= TOLERANCE * largest)) {
        print_error("%s on %s, step %lld: %s of '%s' off by %g of %g\n", c->run, c->device,
                    (long long)step, param, c->name, worst, largest);
        fail();
    }
}

/* number of stored tensors compared */
static int run_param(const param_case *c)
{
    const td_json *lrs = td_golden_rows(doc, "lr");
    double values[N_MAX], lr, zeros[N_MAX] = { 0 };
    char name[256];
    td_device *dev;
    int n_checked = 0;

    expect_ok(td_test_device_open(c->device, &dev));
    td_program *p = compile_step(c, dev);
    snprintf(name, sizeof name, "opt.start.%s", c->name);
    fill(c, name, values);
    expect_ok(td_program_set(p, "w", values));
    expect_ok(td_program_set(p, "v", zeros));
    if (has_second(c))
        expect_ok(td_program_set(p, "a", zeros));
    for (size_t t = 0; t < td_json_count(lrs); t++) {
        expect_ok(td_json_as_number(td_json_at(lrs, t), &lr));
        snprintf(name, sizeof name, "opt.grad.%zu.%s", t, c->name);
        fill(c, name, values);
        expect_ok(td_program_bind(p, "g", values));
        bind_scalar(c, p, "lr", lr);
        for (int k = 0; k < 2 && is_adam(c); k++)
            bind_scalar(c, p, k ? "rest2" : "rest1", 1 - pow(c->beta[k], (double)t + 1));
        expect_ok(td_program_run(p));
        check(c, p, "w", stored(c, (int64_t)t, ""), (int64_t)t);
        check(c, p, "v", stored(c, (int64_t)t, is_adam(c) ? ".exp_avg" : ".momentum_buffer"),
              (int64_t)t);
        if (has_second(c))
            check(c, p, "a", stored(c, (int64_t)t, is_adam(c) ? ".exp_avg_sq" : ".square_avg"),
                  (int64_t)t);
        n_checked += stored(c, (int64_t)t, "") != NULL;
    }
    td_program_free(p);
    td_device_close(dev);
    return n_checked;
}

/* --- the runs of the file -------------------------------------------------------------------- */

static const td_op *op_of(const td_json *run)
{
    const char *name = td_golden_text(run, "optimizer");
    if (strcmp(name, "adam") == 0 || strcmp(name, "adamw") == 0)
        return &td_op_adam;
    if (strcmp(name, "lamb") == 0)
        return &td_op_lamb;
    return strcmp(name, "rmsprop") == 0 ? &td_op_rmsprop : &td_op_sgd;
}

/* the op's attributes but for the decay */
static void print_attrs(const td_json *run, char *out, size_t size)
{
    const td_op *op = op_of(run);
    bool is_nesterov = false;
    if (op == &td_op_adam || op == &td_op_lamb) {
        const bool is_decoupled = strcmp(td_golden_text(run, "optimizer"), "adamw") == 0;
        snprintf(out, size, "beta1=%.17g, beta2=%.17g, eps=%.17g%s", td_golden_number(run, "beta1"),
                 td_golden_number(run, "beta2"), td_golden_number(run, "eps"),
                 is_decoupled ? ", decoupled=true" : "");
        return;
    }
    if (op == &td_op_rmsprop) {
        snprintf(out, size, "momentum=%.17g, alpha=%.17g, eps=%.17g",
                 td_golden_number(run, "momentum"), td_golden_number(run, "rmsprop_alpha"),
                 td_golden_number(run, "rmsprop_eps"));
        return;
    }
    expect_ok(td_json_bool(run, "nesterov", &is_nesterov));
    snprintf(out, size, "momentum=%.17g%s", td_golden_number(run, "momentum"),
             is_nesterov ? ", nesterov=true" : "");
}

static int run_group(const td_json *run, const td_json *group, const char *device, td_dtype dtype)
{
    const td_json *params = td_golden_rows(group, "params");
    char attrs[120];
    int n_checked = 0;

    print_attrs(run, attrs, sizeof attrs);
    for (size_t i = 0; i < td_json_count(params); i++) {
        param_case c = {
            .run = td_golden_text(run, "name"), .device = device, .dtype = dtype, .op = op_of(run)
        };
        expect_ok(td_json_as_text(td_json_at(params, i), &c.name));
        for (int k = 0; k < 2 && is_adam(&c); k++)
            c.beta[k] = td_golden_number(run, k ? "beta2" : "beta1");
        snprintf(c.attrs, sizeof c.attrs, "%s, decay=%.17g", attrs,
                 td_golden_number(group, "weight_decay"));
        const td_tensor *x = stored(&c, 0, "");
        assert_non_null(x);
        c.rank = x->rank;
        memcpy(c.dim, x->dim, sizeof c.dim);
        c.n = (int64_t)(x->n_bytes / sizeof(float));
        assert_in_range(c.n, 1, N_MAX);
        n_checked += run_param(&c);
    }
    return n_checked;
}

static void run_part(const char *part, const char *device, td_dtype dtype)
{
    open_part(part);
    const td_json *runs = td_golden_rows(doc, "runs");
    int n_checked = 0;
    assert_non_null(runs);
    for (size_t i = 0; i < td_json_count(runs); i++) {
        const td_json *run = td_json_at(runs, i), *groups = td_golden_rows(run, "groups");
        for (size_t k = 0; k < td_json_count(groups); k++)
            n_checked += run_group(run, td_json_at(groups, k), device, dtype);
    }
    assert_true(n_checked > 0);
    close_part();
}

static void run_all(const char *device, td_dtype dtype)
{
    for (int i = 0; i < N_PARTS; i++)
        run_part(parts[i], device, dtype);
}

static void on_ref(void **state)
{
    (void)state;
    run_all("ref", TD_DT_F32);
}

static void on_cpu(void **state)
{
    (void)state;
    run_all("cpu", TD_DT_F32);
}

static void in_double(void **state)
{
    (void)state;
    run_all("ref", TD_DT_F64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_ref),
        cmocka_unit_test(on_cpu),
        cmocka_unit_test(in_double),
    };
    td_golden_require(parts[0]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
