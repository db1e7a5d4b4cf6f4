/*
 * test_update.c -- the ends of a step under loss scaling, on every kernel there is: sgd with
 * `inverse`, `finite` and `copy`, batch_norm_update with `finite`, all_finite
 *
 * How near the numbers are is for the problem lines (tests/ops); here it is about single bits:
 * nothing is written where `finite` is 0, a power of two is taken off exactly, the copy is the
 * weight rounded, and no infinity is overlooked.
 */
#include <math.h>

#include "backend/ref/ref.h"
#include "base/half.h"
#include "base/rng.h"
#include "ops/problem_line.h"
#include "runtime/device.h"
#include "support/expect.h"

enum { MAX_TENSORS = TD_IN_MAX + TD_OUT_MAX };

/* --- one kernel on a problem line's op -------------------------------------------------------- */

typedef struct {
    td_graph *graph;
    const td_node *node;
    int n_tensors;
    void *args[MAX_TENSORS + 1];
} call;

static const td_type *type_of(const call *c, int i)
{
    const td_node *n = c->node;
    return i < n->n_in ? td_in_type(n, i) : &n->out[i - n->n_in]->type;
}

/* tensors of random numbers; the scalars among them are 1 */
static call call_of(const char *line)
{
    call c = { 0 };
    const td_op *op;
    expect_ok(td_problem_graph(line, TD_DT_NONE, &c.graph, &op));
    for (int i = 0; i < c.graph->n_nodes; i++)
        if (c.graph->nodes[i]->op == op)
            c.node = c.graph->nodes[i];
    c.n_tensors = c.node->n_in + c.node->n_out;
    td_rng r = td_rng_make(5, TD_RNG_TEST, 0, 0);
    for (int i = 0; i < c.n_tensors; i++) {
        const td_type *t = type_of(&c, i);
        c.args[i] = td_alloc((size_t)td_type_bytes(t), 1);
        assert_non_null(c.args[i]);
        for (int64_t k = 0; k < td_type_count(t); k++) {
            const double x = td_type_count(t) == 1 ? 1 : td_rng_normal(&r);
            td_ref_store(t->dtype, &x, 1, (char *)c.args[i] + (size_t)k * td_dtype_bytes(t->dtype));
        }
    }
    return c;
}

static void call_free(call *c)
{
    for (int i = 0; i < c->n_tensors; i++)
        td_free(c->args[i]);
    td_graph_free(c->graph);
}

static void set(call *c, int i, int64_t at, double x)
{
    const td_dtype d = type_of(c, i)->dtype;
    td_ref_store(d, &x, 1, (char *)c->args[i] + (size_t)at * td_dtype_bytes(d));
}

static void run_kernel(const td_kernel *k, call *c)
{
    td_prepared p = { .kernel = k, .node = c->node };
    if (k->prepare)
        expect_ok(k->prepare(c->node, &p));
    c->args[c->n_tensors] = p.scratch_bytes ? td_alloc(p.scratch_bytes, 1) : NULL;
    expect_ok(k->run(&p, c->args));
    td_free(c->args[c->n_tensors]);
    if (k->release)
        k->release(&p);
}

/* the i-th kernel of any backend that takes the line's op; NULL past the end */
static const td_kernel *kernel_at(const call *c, int i)
{
    const td_backend *b;
    for (int j = 0; (b = td_backend_at(j)); j++)
        for (int k = 0; k < b->n_kernels; k++)
            if (b->kernels[k]->op == c->node->op && b->kernels[k]->accepts(c->node) == TD_OK &&
                i-- == 0)
                return b->kernels[k];
    return NULL;
}

typedef void (*check)(const td_kernel *k, const char *line);

static void each_kernel(const char *line, int at_least, check f)
{
    call c = call_of(line);
    const td_kernel *k;
    int n = 0;
    while ((k = kernel_at(&c, n))) {
        f(k, line);
        n++;
    }
    assert_true(n >= at_least);
    call_free(&c);
}

/* --- sgd and batch_norm_update ---------------------------------------------------------------- */

static int operand_named(const call *c, const char *name)
{
    for (int i = 0; i < c->node->n_in; i++)
        if (strcmp(c->node->in[i]->name, name) == 0)
            return i;
    fail_msg("no operand %s", name);
    return 0;
}

/* infinite and missing numbers in what is read, and still every bit of every tensor as before */
static void writes_nothing(const td_kernel *k, const char *line)
{
    call before = call_of(line), after = call_of(line);
    for (int side = 0; side < 2; side++) {
        call *c = side ? &after : &before;
        set(c, operand_named(c, "finite"), 0, 0);
        set(c, 2, 3, INFINITY); /* the gradient; the mean */
        set(c, 2, 5, NAN);
        set(c, 0, 1, -0.0);
        set(c, 1, 2, 1e-42);
    }
    run_kernel(k, &after);
    for (int i = 0; i < before.n_tensors; i++)
        if (memcmp(before.args[i], after.args[i], (size_t)td_type_bytes(type_of(&before, i))) != 0)
            fail_msg("%s: tensor %d was written", k->name, i);
    call_free(&before);
    call_free(&after);
}

/* the gradient of 1024 times the loss, and 1/1024: no bit differs from the plain step */
static void takes_the_scale_off(const td_kernel *k, const char *line)
{
    call plain = call_of(line), scaled = call_of(line);
    const int inverse = operand_named(&plain, "inverse");
    float *g = scaled.args[2];
    for (int64_t i = 0; i < td_type_count(type_of(&scaled, 2)); i++)
        g[i] *= 1024;
    set(&scaled, inverse, 0, 0x1p-10);
    run_kernel(k, &plain);
    run_kernel(k, &scaled);
    for (int i = 0; i < 2; i++)
        if (memcmp(plain.args[i], scaled.args[i], (size_t)td_type_bytes(type_of(&plain, i))) != 0)
            fail_msg("%s: operand %d has other bits", k->name, i);
    call_free(&plain);
    call_free(&scaled);
}

static void copies_the_weight(const td_kernel *k, const char *line)
{
    call c = call_of(line);
    const int at = operand_named(&c, "copy");
    const bool is_bf16 = type_of(&c, at)->dtype == TD_DT_BF16;
    set(&c, 0, 0, 7e4); /* infinite in f16 */
    set(&c, 0, 1, 1e-7);
    set(&c, 0, 2, 1e-41);
    set(&c, 2, 3, NAN);
    run_kernel(k, &c);
    const float *w = c.args[0];
    const uint16_t *copy = c.args[at];
    for (int64_t i = 0; i < td_type_count(type_of(&c, 0)); i++)
        if (copy[i] != (is_bf16 ? td_f32_to_bf16(w[i]) : td_f32_to_f16(w[i])))
            fail_msg("%s: element %d of the copy", k->name, (int)i);
    call_free(&c);
}

static void test_nothing_is_written(void **state)
{
    (void)state;
    each_kernel("sgd w=41 v=41 g=41 lr=- inverse=- finite=- momentum=0.9 decay=1e-4", 2,
                writes_nothing);
    each_kernel("sgd w=20000 v=20000 g=20000 lr=- inverse=- finite=- copy=20000 dtype=bf16", 2,
                writes_nothing);
    each_kernel("sgd w=41 v=41 g=41 lr=- inverse=- finite=- copy=41 dtype=f16", 2, writes_nothing);
    each_kernel("batch_norm_update r=24 s=24 mean=24 var=24 finite=- count=9", 1, writes_nothing);
}

static void test_the_scale_is_taken_off(void **state)
{
    (void)state;
    each_kernel("sgd w=37 v=37 g=37 lr=- inverse=- momentum=0.9 decay=1e-4", 2,
                takes_the_scale_off);
    each_kernel("sgd w=37 v=37 g=37 lr=- inverse=- finite=- momentum=0.9 nesterov=true", 2,
                takes_the_scale_off);
}

static void test_the_copy_is_the_weight_rounded(void **state)
{
    (void)state;
    each_kernel("sgd w=1003 v=1003 g=1003 lr=- inverse=- finite=- copy=1003 dtype=bf16", 2,
                copies_the_weight);
    each_kernel("sgd w=1003 v=1003 g=1003 lr=- inverse=- finite=- copy=1003 dtype=f16", 2,
                copies_the_weight);
}

/* --- all_finite ------------------------------------------------------------------------------- */

static void expect_answer(const td_kernel *k, call *c, float wanted)
{
    float *y = c->args[c->node->n_in];
    *y = NAN;
    run_kernel(k, c);
    if (*y != wanted)
        fail_msg("%s: %g, wanted %g", k->name, (double)*y, (double)wanted);
}

/* in the first, the last and some places between, also behind the first piece of work */
static void sees_it_anywhere(const td_kernel *k, const char *line)
{
    const double bad[] = { INFINITY, -INFINITY, NAN };
    call c = call_of(line);
    const int64_t count = td_type_count(type_of(&c, 0));
    expect_answer(k, &c, 1);
    for (int i = 0; i < 12; i++) {
        const int64_t at = (count - 1) * i / 11;
        set(&c, 0, at, bad[i % 3]);
        expect_answer(k, &c, 0);
        set(&c, 0, at, -3e4);
        expect_answer(k, &c, 1);
    }
    call_free(&c);
}

/* what an earlier tensor was stays */
static void goes_on_from_before(const td_kernel *k, const char *line)
{
    call c = call_of(line);
    expect_answer(k, &c, 1);
    set(&c, 1, 0, 0);
    expect_answer(k, &c, 0);
    set(&c, 1, 0, 1);
    set(&c, 0, 0, NAN);
    expect_answer(k, &c, 0);
    call_free(&c);
}

static void test_all_finite(void **state)
{
    (void)state;
    each_kernel("all_finite x=7", 2, sees_it_anywhere);
    each_kernel("all_finite x=40001", 2, sees_it_anywhere);
    each_kernel("all_finite x=40001 dtype=bf16", 2, sees_it_anywhere);
    each_kernel("all_finite x=40001 dtype=f16", 2, sees_it_anywhere);
    each_kernel("all_finite x=77 finite=-", 2, goes_on_from_before);
    each_kernel("all_finite x=77 finite=- dtype=f16", 2, goes_on_from_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_written),
        cmocka_unit_test(test_the_scale_is_taken_off),
        cmocka_unit_test(test_the_copy_is_the_weight_rounded),
        cmocka_unit_test(test_all_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
