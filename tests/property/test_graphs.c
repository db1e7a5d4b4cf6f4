/*
 * test_graphs.c -- laws that hold for every graph, on random ones
 *
 *     printed and parsed again it prints the same
 *     a pass (but grad) run on its own result changes nothing
 *     all passes or only the two that must, cpu or ref: the same outputs, and the same parameters
 *     after two steps
 *     its gradients are what finite differences say
 *
 * TANDEM_GRAPHS sets how many graphs (100); TANDEM_SEED with which seed to begin (1).
 */
/* ctest: timeout 600 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/ref/ref.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "runtime/device.h"
#include "support/graphs.h"
#include "support/random_graph.h"

#define ALL_OPTIONAL "fold,fuse,layout,clean,order"

static uint64_t seed_at(int i)
{
    const char *text = getenv("TANDEM_SEED");
    return (uint64_t)i + (uint64_t)(text ? strtoll(text, NULL, 10) : 1);
}

static int n_graphs(void)
{
    const char *text = getenv("TANDEM_GRAPHS");
    return text ? (int)strtol(text, NULL, 10) : 100;
}

/* the graph in the log of a failing test */
static void show(const td_graph *g, uint64_t seed, const char *what)
{
    char *text = td_test_print(g);
    fprintf(stderr, "seed %llu: %s\n%s", (unsigned long long)seed, what, text);
    td_text_free(text);
    fail();
}

/* --- texts and passes ------------------------------------------------------------------------- */

static void print_and_parse_is_identity(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * n_graphs(); i++) {
        td_graph *g = td_random_graph(seed_at(i), (td_random_kind)(i % 3), TD_DT_F32), *again;
        char *once = td_test_print(g);
        expect_ok(td_graph_parse(once, "printed", &again));
        char *twice = td_test_print(again);
        assert_string_equal(once, twice);
        td_text_free(once);
        td_text_free(twice);
        td_graph_free(g);
        td_graph_free(again);
    }
}

/* a training graph through all passes, each one twice */
static void check_passes(uint64_t seed, const td_target *target)
{
    td_graph *g = td_random_graph(seed, (td_random_kind)(seed % 3), TD_DT_F32);
    const td_pass *pass;
    for (int i = 0; (pass = td_pass_at(i)); i++) {
        td_graph *once, *twice, *parsed;
        if (td_pass_run(pass, g, target, NULL, &once) != TD_OK)
            show(g, seed, td_error_message());
        char *text = td_test_print(once), *again = NULL;
        expect_ok(td_graph_parse(text, pass->name, &parsed));
        td_graph_free(parsed);
        if (strcmp(pass->name, "grad") != 0) {
            expect_ok(td_pass_run(pass, once, target, NULL, &twice));
            again = td_test_print(twice);
            if (strcmp(text, again) != 0) {
                fprintf(stderr, "pass %s, seed %llu: once\n%stwice\n%s", pass->name,
                        (unsigned long long)seed, text, again);
                fail();
            }
            td_graph_free(twice);
        }
        td_text_free(text);
        td_text_free(again);
        td_graph_free(g);
        g = once;
    }
    td_graph_free(g);
}

static void a_pass_run_twice_is_run_once(void **state)
{
    (void)state;
    td_device *dev;
    expect_ok(td_device_open("cpu", &dev));
    for (int i = 0; i < n_graphs(); i++) {
        check_passes(seed_at(i), &dev->target);
        check_passes(seed_at(i), &td_test_target);
    }
    td_device_close(dev);
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct {
    td_device *dev;
    td_program *p;
    void *images, *labels, *lr;
} runner;

static void *filled(const td_graph *g, const char *name, uint64_t seed, double scale)
{
    const td_value *v = td_graph_find(g, name);
    if (!v)
        return NULL;
    int64_t n = td_type_count(&v->type);
    td_rng r = td_rng_make(seed, TD_RNG_TEST, 99, td_hash_text(name));
    double *x = td_alloc((size_t)n, sizeof *x);
    void *data = td_alloc((size_t)td_type_bytes(&v->type), 1);
    assert_true(x && data);
    for (int64_t i = 0; i < n; i++)
        x[i] = v->type.dtype == TD_DT_I64 ? (double)td_rng_below(&r, 2) : scale * td_rng_normal(&r);
    if (strcmp(name, "lr") == 0)
        x[0] = 0.05;
    td_ref_store(v->type.dtype, x, n, data);
    td_free(x);
    return data;
}

static const int64_t random_numbers[3] = { 1, 2, 3 }; /* of dropout */

static runner runner_of(const td_graph *g, uint64_t seed, const char *device, const char *skip)
{
    runner r = { 0 };
    expect_ok(td_device_open(device, &r.dev));
    if (td_compile(g, r.dev, &(td_compile_opts){ .skip = skip }, &r.p) != TD_OK)
        show(g, seed, td_error_message());
    expect_ok(td_program_init(r.p, seed));
    r.images = filled(g, "images", seed, 1);
    r.labels = filled(g, "labels", seed, 1);
    r.lr = filled(g, "lr", seed, 1);
    expect_ok(td_program_bind(r.p, "images", r.images));
    expect_ok(td_program_bind(r.p, "labels", r.labels));
    if (td_program_has_input(r.p, "random"))
        expect_ok(td_program_bind(r.p, "random", random_numbers));
    if (r.lr)
        expect_ok(td_program_bind(r.p, "lr", r.lr));
    return r;
}

static void release(runner *r)
{
    td_program_free(r->p);
    td_device_close(r->dev);
    td_free(r->images);
    td_free(r->labels);
    td_free(r->lr);
}

/* largest difference over the largest entry (or over 1e-2, where all are small); as doubles */
static double distance(const void *a, const void *b, const td_type *t)
{
    int64_t n = td_type_count(t);
    double *x = td_alloc((size_t)n, sizeof *x), *y = td_alloc((size_t)n, sizeof *y);
    double most = 1e-2, diff = 0;
    assert_true(x && y);
    td_ref_load(t->dtype, a, n, x);
    td_ref_load(t->dtype, b, n, y);
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fmax(fabs(x[i]), fabs(y[i])));
        diff = fmax(diff, fabs(x[i] - y[i]));
        if (!isfinite(x[i]) || !isfinite(y[i]))
            diff = INFINITY;
    }
    td_free(x);
    td_free(y);
    return diff / most;
}

static double outputs_distance(const td_graph *g, const runner *a, const runner *b)
{
    double most = 0;
    for (int i = 0; i < g->n_outputs; i++) {
        td_type t, u;
        const void *x = td_program_output(a->p, g->outputs[i].name, &t);
        const void *y = td_program_output(b->p, g->outputs[i].name, &u);
        assert_true(td_type_equal(&t, &u));
        assert_true(td_type_is_plain(&t));
        most = fmax(most, distance(x, y, &t));
    }
    return most;
}

static double params_distance(const runner *a, const runner *b)
{
    double most = 0;
    for (int i = 0; i < td_program_param_count(a->p); i++) {
        const char *name = td_program_param_name(a->p, i);
        td_type t = td_program_param_type(a->p, i);
        void *x = td_alloc((size_t)td_type_bytes(&t), 1),
             *y = td_alloc((size_t)td_type_bytes(&t), 1);
        assert_true(x && y);
        expect_ok(td_program_get(a->p, name, x));
        expect_ok(td_program_get(b->p, name, y));
        most = fmax(most, distance(x, y, &t));
        td_free(x);
        td_free(y);
    }
    return most;
}

/* does a run with the passes left out stay in a range where floats can be compared? */
static bool is_tame(const runner *r)
{
    bool is_tame = true;
    for (int i = 0; i < td_program_param_count(r->p); i++) {
        td_type t = td_program_param_type(r->p, i);
        int64_t n = td_type_count(&t);
        double *x = td_alloc((size_t)n, sizeof *x);
        void *data = td_alloc((size_t)td_type_bytes(&t), 1);
        assert_true(x && data);
        expect_ok(td_program_get(r->p, td_program_param_name(r->p, i), data));
        td_ref_load(t.dtype, data, n, x);
        for (int64_t k = 0; k < n; k++)
            is_tame = is_tame && fabs(x[k]) < 1e3;
        td_free(x);
        td_free(data);
    }
    return is_tame;
}

static int n_compared; /* steps */

static void check_same(uint64_t seed, td_random_kind kind, td_dtype dtype, const char *device,
                       const char *skip, double tolerance)
{
    char what[160];
    td_graph *g = td_random_graph(seed, kind, dtype);
    runner plain = runner_of(g, seed, "ref", ALL_OPTIONAL),
           other = runner_of(g, seed, device, skip);
    for (int step = 0; step < 2; step++) {
        expect_ok(td_program_run(plain.p));
        expect_ok(td_program_run(other.p));
        if (!is_tame(&plain)) /* the random network ran away */
            break;
        n_compared++;
        double y = outputs_distance(g, &plain, &other), w = params_distance(&plain, &other);
        snprintf(what, sizeof what,
                 "%s %s, skip '%s', step %d: outputs differ by %.2g, parameters by %.2g", device,
                 td_dtype_name(dtype), skip ? skip : "", step, y, w);
        if (!(y <= tolerance) || !(w <= tolerance))
            show(g, seed, what);
    }
    release(&plain);
    release(&other);
    td_graph_free(g);
}

/* 2e-3: a norm of nearly equal numbers multiplies rounding by up to three (eps = 0.1), a dozen of
   them follow each other, and two optimiser steps come on top; a wrong kernel or plan is off by 0.1
   and more */
#define TOLERANCE_F32 2e-3
#define TOLERANCE_F64 1e-10

static void passes_change_nothing_for_inference(void **state)
{
    (void)state;
    for (int i = 0; i < n_graphs(); i++) {
        check_same(seed_at(i), TD_RANDOM_INFER, TD_DT_F32, "cpu", NULL, TOLERANCE_F32);
        check_same(seed_at(i), TD_RANDOM_INFER, TD_DT_F64, "ref", NULL, TOLERANCE_F64);
        check_same(seed_at(i), TD_RANDOM_INFER, TD_DT_F64, "cpu", NULL, TOLERANCE_F64);
    }
}

/* --- 8-bit integers --------------------------------------------------------------------------- */

static bool supports_all(void *ctx, const td_node *n)
{
    (void)ctx;
    (void)n;
    return true;
}

/* a device on which only filters of 7 bits and images of u8 have a kernel */
static bool supports_narrow(void *ctx, const td_node *n)
{
    (void)ctx;
    return n->op != &td_op_conv2d_int8 ||
           (((const td_conv_int8_attr *)n->attr)->weight_max <= TD_INT8_NARROW &&
            td_in_type(n, 0)->dtype == TD_DT_U8);
}

static const td_target narrow_target = { .supports = supports_narrow, .is_reference = true };
static const td_target wide_target = { .supports = supports_all, .is_reference = true };

/* the graph with every convolution in integers that can be, its ranges 4 */
static td_graph *in_int8(const td_graph *g, const td_target *target, int *n_convs)
{
    static const td_pass *const passes[] = { &td_pass_fold, &td_pass_fuse, &td_pass_quantize };
    td_activation_range ranges[64];
    td_activation_ranges table = { .ranges = ranges };
    for (int i = 0; i < g->n_values && table.n < 64; i++)
        if (td_value_is_param(g->values[i]) &&
            (g->values[i]->type.rank == 4 || g->values[i]->type.rank == 2))
            ranges[table.n++] = (td_activation_range){ g->values[i]->name, 4, 4, i % 5 == 0 };
    const td_amp_opts amp = { .precision = TD_PRECISION_INT8, .ranges = &table, .is_silent = true };
    td_graph *now = NULL;
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        td_graph *next;
        expect_ok(td_pass_run(passes[i], now ? now : g, target, &amp, &next));
        td_graph_free(now);
        now = next;
    }
    for (int i = 0; i < now->n_nodes; i++)
        *n_convs += now->nodes[i]->op == &td_op_conv2d_int8;
    return now;
}

/* A value near the middle of two integers may become either, and what follows differs by a step or
   two of 4/127 each; a wrong kernel, scale or layout is off by most of the values. */
#define TOLERANCE_INT8 0.1

static void integers_are_the_same_on_every_device(void **state)
{
    (void)state;
    char what[100];
    int n_convs = 0;
    for (int i = 0; i < n_graphs(); i++) {
        td_graph *g = td_random_graph(seed_at(i), TD_RANDOM_INFER, TD_DT_F32);
        td_graph *q = in_int8(g, i % 2 ? &narrow_target : &wide_target, &n_convs);
        runner a = runner_of(q, seed_at(i), "ref", NULL), b = runner_of(q, seed_at(i), "cpu", NULL);
        expect_ok(td_program_run(a.p));
        expect_ok(td_program_run(b.p));
        const double y = outputs_distance(q, &a, &b);
        snprintf(what, sizeof what, "int8: outputs differ by %.2g", y);
        if (!(y <= TOLERANCE_INT8))
            show(q, seed_at(i), what);
        release(&a);
        release(&b);
        td_graph_free(q);
        td_graph_free(g);
    }
    assert_true(n_convs > n_graphs() / 4);
}

static void passes_change_nothing_for_training(void **state)
{
    (void)state;
    static const char *const skips[] = { "fold", "fuse", "layout", "clean", "order" };
    n_compared = 0;
    for (int i = 0; i < n_graphs(); i++) {
        check_same(seed_at(i), TD_RANDOM_TRAIN, TD_DT_F32, "cpu", NULL, TOLERANCE_F32);
        check_same(seed_at(i), TD_RANDOM_TRAIN, TD_DT_F32, "cpu", skips[i % 5], TOLERANCE_F32);
        check_same(seed_at(i), TD_RANDOM_TRAIN, TD_DT_F64, "ref", NULL, TOLERANCE_F64);
    }
    assert_true(n_compared > 5 * n_graphs()); /* of 6 */
}

static void a_run_repeated_gives_the_same_bits(void **state)
{
    (void)state;
    td_set_threads(0);
    for (int i = 0; i < n_graphs(); i++) {
        td_graph *g = td_random_graph(seed_at(i), TD_RANDOM_GRADIENTS, TD_DT_F32);
        runner a = runner_of(g, seed_at(i), "cpu", NULL), b = runner_of(g, seed_at(i), "cpu", NULL);
        expect_ok(td_program_run(a.p));
        expect_ok(td_program_run(a.p)); /* on memory full of the first run's leftovers */
        expect_ok(td_program_run(b.p));
        for (int k = 0; k < g->n_outputs; k++) {
            td_type t;
            const void *x = td_program_output(a.p, g->outputs[k].name, &t);
            const void *y = td_program_output(b.p, g->outputs[k].name, NULL);
            if (memcmp(x, y, (size_t)td_type_bytes(&t)) != 0)
                show(g, seed_at(i), g->outputs[k].name);
        }
        release(&a);
        release(&b);
        td_graph_free(g);
    }
    td_set_threads(1);
}

/* --- gradients -------------------------------------------------------------------------------- */

typedef struct {
    runner *r;
    const char *name;
    double *w, *u, *at; /* [n] the parameter, a direction, and room */
    size_t n;
} line;

/* the loss at w + h u */
static double loss_at(const line *l, double h)
{
    for (size_t i = 0; i < l->n; i++)
        l->at[i] = l->w[i] + h * l->u[i];
    expect_ok(td_program_set(l->r->p, l->name, l->at));
    expect_ok(td_program_run(l->r->p));
    return *(const double *)td_program_output(l->r->p, "loss", NULL);
}

/* 2 h d . u = loss(w + h u) - loss(w - h u); another step where the first one crosses a kink */
static bool agrees(const line *l, double dot, double tolerance, double *difference)
{
    static const double steps[] = { 1e-6, 1e-7, 1e-5 };
    for (int i = 0; i < 3; i++) {
        *difference = (loss_at(l, steps[i]) - loss_at(l, -steps[i])) / (2 * steps[i]);
        if (fabs(dot - *difference) <= tolerance)
            return true;
    }
    return false;
}

/* one parameter along one random direction */
static void check_gradient(const td_graph *g, uint64_t seed, runner *r, const char *name)
{
    char output[32], what[160];
    size_t n = (size_t)td_type_count(&td_test_value(g, name)->type);
    line l = { r, name, td_alloc(n, 8), td_alloc(n, 8), td_alloc(n, 8), n };
    td_rng rng = td_rng_make(seed, TD_RNG_TEST, 5, td_hash_text(name));
    double dot = 0, size = 0, difference;
    assert_true(l.w && l.u && l.at);
    expect_ok(td_program_get(r->p, name, l.w));
    expect_ok(td_program_run(r->p));
    snprintf(output, sizeof output, "d.%s", name);
    const double *d = td_program_output(r->p, output, NULL);
    for (size_t i = 0; i < n; i++) {
        l.u[i] = td_rng_normal(&rng);
        dot += l.u[i] * d[i];
        size += fabs(l.u[i] * d[i]);
    }
    if (!agrees(&l, dot, 1e-5 * size + 1e-7, &difference)) {
        snprintf(what, sizeof what, "d loss / d %s: %.9g, by differences %.9g", name, dot,
                 difference);
        show(g, seed, what);
    }
    expect_ok(td_program_set(r->p, name, l.w));
    td_free(l.w);
    td_free(l.u);
    td_free(l.at);
}

static void gradients_agree_with_differences(void **state)
{
    (void)state;
    int n_checked = 0;
    for (int i = 0; i < n_graphs(); i++) {
        td_graph *g = td_random_graph(seed_at(i), TD_RANDOM_GRADIENTS, TD_DT_F64);
        runner r = runner_of(g, seed_at(i), "ref", NULL);
        for (int k = 0; k < g->n_outputs; k++)
            if (strncmp(g->outputs[k].name, "d.", 2) == 0) {
                check_gradient(g, seed_at(i), &r, g->outputs[k].name + 2);
                n_checked++;
            }
        release(&r);
        td_graph_free(g);
    }
    print_message("%d gradients\n", n_checked);
    assert_true(n_checked > n_graphs());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(print_and_parse_is_identity),
        cmocka_unit_test(a_pass_run_twice_is_run_once),
        cmocka_unit_test(passes_change_nothing_for_inference),
        cmocka_unit_test(integers_are_the_same_on_every_device),
        cmocka_unit_test(passes_change_nothing_for_training),
        cmocka_unit_test(a_run_repeated_gives_the_same_bits),
        cmocka_unit_test(gradients_agree_with_differences),
    };
    td_set_threads(1); /* the graphs are too small for more */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
