/*
 * test_golden_optimizers.c -- five optimiser steps on a small state against optimizers.json
 *
 * Every parameter is a graph of its own: w, v <- sgd(w, v, g, lr), or rmsprop with its mean square,
 * with its group's decay.  Start and gradients come from the fill.
 */
#include <math.h>
#include <stdio.h>

#include "ir/build.h"
#include "ops/ops.h"
#include "support/device.h"
#include "support/expect.h"
#include "support/fill.h"
#include "support/golden.h"
#include "tandem/program.h"

#define PART "classification"

/* five steps of three roundings each: a few 1e-7 of the largest entry */
#define TOLERANCE 1e-6
#define N_MAX     4096 /* elements of a parameter */

static td_json *doc;
static td_tensors *tensors;

static int set_up(void **state)
{
    (void)state;
    doc = td_golden_json(PART, "optimizers.json");
    tensors = td_golden_tensors(PART, "optimizers.safetensors");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    td_tensors_free(tensors);
    td_json_free(doc);
    return 0;
}

/* --- one parameter --------------------------------------------------------------------------- */

typedef struct {
    const char *run, *name, *device;
    td_dtype dtype;
    bool is_rmsprop;
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
    if (c->is_rmsprop)
        td_emit(b, &td_op_rmsprop, td_build_attr(b, &td_op_rmsprop, c->attrs), w, v, grad, lr,
                td_param(b, "a", c->dtype, c->rank, c->dim, "role=momentum"));
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
    if (c->is_rmsprop)
        expect_ok(td_program_set(p, "a", zeros));
    for (size_t t = 0; t < td_json_count(lrs); t++) {
        expect_ok(td_json_as_number(td_json_at(lrs, t), &lr));
        float lr_f32 = (float)lr;
        snprintf(name, sizeof name, "opt.grad.%zu.%s", t, c->name);
        fill(c, name, values);
        expect_ok(td_program_bind(p, "g", values));
        expect_ok(td_program_bind(p, "lr", c->dtype == TD_DT_F64 ? (void *)&lr : (void *)&lr_f32));
        expect_ok(td_program_run(p));
        check(c, p, "w", stored(c, (int64_t)t, ""), (int64_t)t);
        check(c, p, "v", stored(c, (int64_t)t, ".momentum_buffer"), (int64_t)t);
        if (c->is_rmsprop)
            check(c, p, "a", stored(c, (int64_t)t, ".square_avg"), (int64_t)t);
        n_checked += stored(c, (int64_t)t, "") != NULL;
    }
    td_program_free(p);
    td_device_close(dev);
    return n_checked;
}

/* --- the runs of the file -------------------------------------------------------------------- */

static int run_group(const td_json *run, const td_json *group, const char *device, td_dtype dtype)
{
    const td_json *params = td_golden_rows(group, "params");
    const bool is_rmsprop = strcmp(td_golden_text(run, "optimizer"), "rmsprop") == 0;
    bool is_nesterov = false;
    char more[80] = "";
    int n_checked = 0;

    if (is_rmsprop)
        snprintf(more, sizeof more, "alpha=%.17g, eps=%.17g",
                 td_golden_number(run, "rmsprop_alpha"), td_golden_number(run, "rmsprop_eps"));
    else
        expect_ok(td_json_bool(run, "nesterov", &is_nesterov));
    if (is_nesterov)
        snprintf(more, sizeof more, "nesterov=true");
    for (size_t i = 0; i < td_json_count(params); i++) {
        param_case c = { .run = td_golden_text(run, "name"),
                         .device = device,
                         .dtype = dtype,
                         .is_rmsprop = is_rmsprop };
        expect_ok(td_json_as_text(td_json_at(params, i), &c.name));
        snprintf(c.attrs, sizeof c.attrs, "momentum=%.17g, decay=%.17g%s%s",
                 td_golden_number(run, "momentum"), td_golden_number(group, "weight_decay"),
                 *more ? ", " : "", more);
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

static void run_all(const char *device, td_dtype dtype)
{
    const td_json *runs = td_golden_rows(doc, "runs");
    int n_checked = 0;
    assert_non_null(runs);
    for (size_t i = 0; i < td_json_count(runs); i++) {
        const td_json *run = td_json_at(runs, i), *groups = td_golden_rows(run, "groups");
        for (size_t k = 0; k < td_json_count(groups); k++)
            n_checked += run_group(run, td_json_at(groups, k), device, dtype);
    }
    assert_true(n_checked > 0);
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
    td_golden_require(PART);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
