/*
 * test_native_pointwise_blocked.c -- 1x1 convolutions on channels in blocks of 16 and their
 * gradients of filters: the bits are the same with every number of threads, the work is divided
 * evenly, and it is known where the kernels are used
 *
 * On a machine without the instructions there is nothing to test; tests/ops/pointwise.lines has the
 * comparisons with the reference.
 */
#include "support/expect.h"

#include <stdio.h>
#include <string.h>

#include "backend/native/native.h"
#include "backend/native/native_pointwise_blocked.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "support/graphs.h"
#include "tandem/program.h"

enum { THREADS_MAX = 17, OPS = 2 };

typedef struct {
    int64_t N, K, C, H, W;
    int stride;
} problem;

/* one job and several of an image, groups of panels, images of several chunks and chunks of several
   images, rows that no pixel reads */
static const problem problems[] = {
    { 1, 32, 32, 6, 6, 1 },     { 3, 64, 96, 7, 7, 1 },   { 2, 160, 2048, 7, 7, 1 },
    { 2, 64, 32, 56, 56, 1 },   { 33, 32, 32, 7, 9, 1 },  { 3, 288, 544, 7, 7, 1 },
    { 2, 64, 512, 14, 14, 1 },  { 2, 64, 32, 14, 13, 2 }, { 2, 32, 64, 56, 56, 2 },
    { 1, 1024, 64, 14, 14, 2 }, { 2, 32, 96, 20, 24, 3 },
};
enum { N_PROBLEMS = sizeof problems / sizeof problems[0] };

static const td_kernel *const kernels[OPS] = { &td_native_pointwise_blocked,
                                               &td_native_pointwise_grad_w };
static const char *const nodes[OPS] = { "conv2d %x, %w", "conv2d_grad_w %dy, %x, %w" };
static const char *const layouts[OPS][3] = { { "aBcd16b", "ABcd16b16a", "aBcd16b" },

                                             { "aBcd16b", "aBcd16b", "ABcd16b16a" } };

/* --- the node --------------------------------------------------------------------------------- */

static td_graph *graph_of(const problem *p, int op)
{
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "%%dy:f32[%lld,%lld,%lld,%lld] = input\n"
                   "%%x:f32[%lld,%lld,%lld,%lld] = input\n"
                   "%%w:f32[%lld,%lld,1,1] = param\n"
                   "%%result = %s {stride=%d}\n"
                   "output result = %%result\n",
                   (long long)p->N, (long long)p->K, (long long)((p->H - 1) / p->stride + 1),
                   (long long)((p->W - 1) / p->stride + 1), (long long)p->N, (long long)p->C,
                   (long long)p->H, (long long)p->W, (long long)p->K, (long long)p->C, nodes[op],
                   p->stride);
    return td_test_graph(text);
}

static td_node *node_of(td_graph *g, int op)
{
    for (int i = 0; i < g->n_nodes; i++) {
        td_node *n = g->nodes[i];
        if (n->op != kernels[op]->op)
            continue;
        for (int k = 0; k < 2; k++)
            (void)snprintf(n->in[k]->type.layout, TD_LAYOUT_BYTES, "%s", layouts[op][k]);
        (void)snprintf(n->out[0]->type.layout, TD_LAYOUT_BYTES, "%s", layouts[op][2]);
        return n;
    }
    fail_msg("no convolution");
    return NULL;
}

/* --- results ---------------------------------------------------------------------------------- */

typedef struct {
    float *in[2], *want, *got;
    size_t n_bytes; /* of the result */
} area;

static area area_new(td_rng *r, const td_node *n)
{
    area a = { .n_bytes = (size_t)td_type_bytes(&n->out[0]->type) };
    for (int i = 0; i < 2; i++) {
        const int64_t count = td_type_count(td_in_type(n, i));
        a.in[i] = td_alloc((size_t)count, sizeof *a.in[i]);
        assert_non_null(a.in[i]);
        for (int64_t k = 0; k < count; k++)
            a.in[i][k] = (float)td_rng_u32(r) / 4294967296.0F - 0.5F;
    }
    a.want = td_alloc(1, a.n_bytes);
    a.got = td_alloc(1, a.n_bytes);
    assert_true(a.want && a.got);
    return a;
}

static void area_release(area *a)
{
    td_free(a->in[0]);
    td_free(a->in[1]);
    td_free(a->want);
    td_free(a->got);
}

static void compute(const td_kernel *k, const td_node *n, const area *a, int threads, float *to)
{
    const int before = td_threads();
    td_prepared p = { .kernel = k, .node = n };
    td_set_threads(threads);
    expect_ok(k->prepare(n, &p));
    char *scratch = td_alloc(1, p.scratch_bytes + 1);
    assert_non_null(scratch);
    memset(scratch, 0xff, p.scratch_bytes);
    memset(to, 0xff, a->n_bytes);
    void *args[] = { a->in[0], a->in[1], to, scratch, NULL };
    if (n->n_in == 3) { /* one for its shape only */
        args[2] = NULL;
        args[3] = to;
        args[4] = scratch;
    }
    expect_ok(k->run(&p, args));
    k->release(&p);
    td_free(scratch);
    td_set_threads(before);
}

static void check_bits(td_rng *r, const problem *p, int op)
{
    td_graph *g = graph_of(p, op);
    const td_node *n = node_of(g, op);
    area a = area_new(r, n);
    compute(kernels[op], n, &a, 1, a.want);
    for (int threads = 2; threads <= THREADS_MAX; threads += threads < 4 ? 1 : 13) {
        compute(kernels[op], n, &a, threads, a.got);
        assert_memory_equal(a.got, a.want, a.n_bytes);
    }
    area_release(&a);
    td_graph_free(g);
}

static void bits_do_not_depend_on_the_threads(void **state)
{
    (void)state;
    td_rng r = td_rng_make(21, TD_RNG_TEST, 0, 0);
    for (int i = 0; td_point_loops_here() && i < N_PROBLEMS; i++)
        for (int op = 0; op < OPS; op++)
            if (op < 1 || problems[i].stride == 1)
                check_bits(&r, &problems[i], op);
}

/* --- division and choice ---------------------------------------------------------------------- */

/* layers of ResNet-50 */
static const problem layers[] = {
    { 32, 256, 64, 56, 56, 1 }, { 32, 128, 512, 28, 28, 1 }, { 32, 1024, 256, 14, 14, 1 },
    { 32, 512, 2048, 7, 7, 1 }, { 32, 512, 256, 56, 56, 2 }, { 32, 2048, 1024, 14, 14, 2 },
    { 32, 64, 64, 56, 56, 1 },
};

static void check_share(const problem *p, int op)
{
    td_graph *g = graph_of(p, op);
    const td_node *n = node_of(g, op);
    for (int threads = 1; threads <= 8; threads *= 2) {
        const td_work_share s = kernels[op]->share(n, threads);
        assert_true(s.largest >= s.mean * 0.999);
        if (s.largest > s.mean * 1.25)
            fail_msg("%s, %lld channels to %lld, %d threads: %.0f of %.0f", nodes[op],
                     (long long)p->C, (long long)p->K, threads, s.largest, s.mean);
    }
    td_graph_free(g);
}

static void layers_are_divided_evenly(void **state)
{
    (void)state;
    for (size_t i = 0; td_point_loops_here() && i < sizeof layers / sizeof layers[0]; i++)
        for (int op = 0; op < OPS; op++)
            if (op < 1 || layers[i].stride == 1)
                check_share(&layers[i], op);
}

static td_status answer(const problem *p, int op)
{
    td_graph *g = graph_of(p, op);
    const td_status st = kernels[op]->accepts(node_of(g, op));
    td_graph_free(g);
    return st;
}

static void what_they_accept(void **state)
{
    (void)state;
    for (int op = 0; op < OPS; op++) {
        const td_status want = td_point_loops_here() ? TD_OK : TD_ENOKERNEL;
        assert_int_equal(answer(&(problem){ 32, 256, 64, 56, 56, 1 }, op), want);
        assert_int_equal(answer(&(problem){ 32, 24, 64, 56, 56, 1 }, op), TD_ENOKERNEL);
        assert_int_equal(answer(&(problem){ 32, 64, 64, 1, 1, 1 }, op), TD_ENOKERNEL);
    }
    assert_int_equal(answer(&(problem){ 32, 48, 64, 56, 56, 1 }, 0), TD_ENOKERNEL); /* no panels */
    assert_int_equal(answer(&(problem){ 32, 64, 64, 56, 56, 2 }, 1), TD_ENOKERNEL); /* a stride */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_the_threads),
        cmocka_unit_test(layers_are_divided_evenly),
        cmocka_unit_test(what_they_accept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
