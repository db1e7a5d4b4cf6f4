/*
 * test_native_conv_grad_w.c -- filter gradients in bf16: sums of small whole numbers are exact, the
 * bits are the same with every number of threads, the work is divided evenly, and it is known where
 * the kernel is used
 *
 * On a machine without the instructions there is nothing to test; tests/ops/conv_grad_w.lines has
 * the comparisons with the reference.
 */
#include "support/expect.h"

#include <stdio.h>
#include <string.h>

#include "backend/native/conv/native_conv_grad_w.h"
#include "backend/native/native.h"
#include "base/half.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "support/graphs.h"
#include "tandem/program.h"

enum { THREADS_MAX = 128, L = TD_GRAD_W_LANES };

#define EXCESS_MAX 16384 /* elements, which cost less than one more barrier */

typedef struct {
    int64_t N, K, C, H, W;
    int side, stride, pad;
} problem;

/* one block, an odd number of blocks, rows of a pair of images, several parts, taps without
   inputs */
static const problem problems[] = {
    { 2, 16, 16, 1, 1, 1, 1, 0 },     { 3, 48, 32, 7, 7, 1, 1, 0 },
    { 8, 64, 64, 56, 56, 1, 1, 0 },   { 4, 64, 48, 9, 11, 1, 2, 0 },
    { 2, 16, 16, 1, 1, 3, 1, 1 },     { 5, 48, 80, 7, 7, 3, 1, 1 },
    { 6, 64, 32, 14, 14, 3, 2, 1 },   { 4, 32, 32, 60, 60, 3, 1, 1 },
    { 2, 16, 32, 2, 3, 3, 1, 2 },     { 3, 32, 16, 13, 12, 7, 2, 3 },
    { 16, 256, 64, 4, 4, 3, 1, 1 },   { 2, 16, 16, 5, 6, 3, 3, 0 },
    { 2, 256, 256, 28, 28, 3, 1, 1 },
};
enum { N_PROBLEMS = sizeof problems / sizeof problems[0] };

static int64_t outputs(const problem *p, int64_t inputs)
{
    return (inputs + 2 * p->pad - p->side) / p->stride + 1;
}

/* --- the node --------------------------------------------------------------------------------- */

static td_graph *graph_of(const problem *p)
{
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "%%dy:bf16[%lld,%lld,%lld,%lld] = input\n"
                   "%%x:bf16[%lld,%lld,%lld,%lld] = input\n"
                   "%%w:bf16[%lld,%lld,%d,%d] = param\n"
                   "%%dw = conv2d_grad_w %%dy, %%x, %%w {stride=%d, pad=%d, wide=true}\n"
                   "output dw = %%dw\n",
                   (long long)p->N, (long long)p->K, (long long)outputs(p, p->H),
                   (long long)outputs(p, p->W), (long long)p->N, (long long)p->C, (long long)p->H,
                   (long long)p->W, (long long)p->K, (long long)p->C, p->side, p->side, p->stride,
                   p->pad);
    return td_test_graph(text);
}

static td_node *node_of(td_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        td_node *n = g->nodes[i];
        if (n->op != &td_op_conv2d_grad_w)
            continue;
        (void)snprintf(n->in[0]->type.layout, TD_LAYOUT_BYTES, "aBcd16b");
        (void)snprintf(n->in[1]->type.layout, TD_LAYOUT_BYTES, "aBcd16b");
        (void)snprintf(n->out[0]->type.layout, TD_LAYOUT_BYTES, "ABcd16b16a");
        return n;
    }
    fail_msg("no filter gradient");
    return NULL;
}

/* --- results ---------------------------------------------------------------------------------- */

typedef struct {
    int64_t n_dy, n_x, n_dw;
    uint16_t *dy, *x;
    float *want, *got;
} area;

static area area_new(const td_node *n)
{
    area a = { .n_dy = td_type_count(td_in_type(n, 0)),
               .n_x = td_type_count(td_in_type(n, 1)),
               .n_dw = td_type_count(&n->out[0]->type) };
    a.dy = td_alloc((size_t)a.n_dy, sizeof *a.dy);
    a.x = td_alloc((size_t)a.n_x, sizeof *a.x);
    a.want = td_alloc((size_t)a.n_dw, sizeof *a.want);
    a.got = td_alloc((size_t)a.n_dw, sizeof *a.got);
    assert_true(a.dy && a.x && a.want && a.got);
    return a;
}

static void area_release(area *a)
{
    td_free(a->dy);
    td_free(a->x);
    td_free(a->want);
    td_free(a->got);
}

/* -1, 0 and 1, or between -0.5 and 0.5 */
static void fill(td_rng *r, uint16_t *x, int64_t n, bool is_whole)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = td_rng_u32(r);
        x[i] = td_f32_to_bf16(is_whole ? (float)(u % 3) - 1 : (float)u / 4294967296.0F - 0.5F);
    }
}

static void compute(const td_node *n, const area *a, int threads, float *dw)
{
    const int before = td_threads();
    td_prepared p = { .kernel = &td_native_conv_grad_w, .node = n };
    td_set_threads(threads);
    expect_ok(p.kernel->prepare(n, &p));
    char *scratch = td_alloc(1, p.scratch_bytes);
    assert_non_null(scratch);
    memset(scratch, 0xff, p.scratch_bytes);
    memset(dw, 0xff, (size_t)a->n_dw * sizeof *dw);
    expect_ok(p.kernel->run(&p, (void *[]){ a->dy, a->x, NULL, dw, scratch }));
    p.kernel->release(&p);
    td_free(scratch);
    td_set_threads(before);
}

/* the sum of filter k, channel c, tap (r, s) */
static float sum_of(const problem *p, const area *a, const int64_t at[4])
{
    const int64_t P = outputs(p, p->H), Q = outputs(p, p->W), KB = p->K / L, CB = p->C / L;
    double sum = 0;
    for (int64_t n = 0; n < p->N; n++)
        for (int64_t i = 0; i < P * Q; i++) {
            const int64_t h = i / Q * p->stride + at[2] - p->pad;
            const int64_t w = i % Q * p->stride + at[3] - p->pad;
            if (h < 0 || h >= p->H || w < 0 || w >= p->W)
                continue;
            const int64_t dy = ((n * KB + at[0] / L) * P * Q + i) * L + at[0] % L;
            const int64_t x = ((n * CB + at[1] / L) * p->H * p->W + h * p->W + w) * L + at[1] % L;
            sum += (double)td_bf16_to_f32(a->dy[dy]) * (double)td_bf16_to_f32(a->x[x]);
        }
    return (float)sum;
}

/* some elements of every tap: all would take minutes */
static void check_sums(const problem *p, const area *a)
{
    const int64_t taps = p->side * p->side, CB = p->C / L;
    for (int64_t i = 0; i<p->K * p->C * taps; i += p->K * p->C * taps> 20000 ? 1999 : 7) {
        const int64_t at[] = { i / taps / p->C, i / taps % p->C, i % taps / p->side,
                               i % taps % p->side };
        const int64_t block = (at[0] / L * CB + at[1] / L) * taps + i % taps;
        const float got = a->got[(block * L + at[1] % L) * L + at[0] % L];
        if (got != sum_of(p, a, at))
            fail_msg("element %lld is %g, not %g", (long long)i, (double)got,
                     (double)sum_of(p, a, at));
    }
}

static void sums_of_whole_numbers_are_exact(void **state)
{
    (void)state;
    td_rng r = td_rng_make(11, TD_RNG_TEST, 0, 0);
    for (int i = 0; td_grad_w_loops_get() && i < N_PROBLEMS; i++) {
        td_graph *g = graph_of(&problems[i]);
        const td_node *n = node_of(g);
        area a = area_new(n);
        fill(&r, a.dy, a.n_dy, true);
        fill(&r, a.x, a.n_x, true);
        compute(n, &a, 1 + i % 3, a.got);
        check_sums(&problems[i], &a);
        area_release(&a);
        td_graph_free(g);
    }
}

static void bits_do_not_depend_on_the_threads(void **state)
{
    (void)state;
    td_rng r = td_rng_make(12, TD_RNG_TEST, 0, 0);
    for (int i = 0; td_grad_w_loops_get() && i < N_PROBLEMS; i++) {
        td_graph *g = graph_of(&problems[i]);
        const td_node *n = node_of(g);
        area a = area_new(n);
        fill(&r, a.dy, a.n_dy, false);
        fill(&r, a.x, a.n_x, false);
        compute(n, &a, 1, a.want);
        for (int threads = 2; threads <= 17; threads += threads < 4 ? 1 : 13) {
            compute(n, &a, threads, a.got);
            assert_memory_equal(a.got, a.want, (size_t)a.n_dw * sizeof *a.got);
        }
        area_release(&a);
        td_graph_free(g);
    }
}

/* --- division and choice ---------------------------------------------------------------------- */

/* layers of ResNet-18 and 50 */
static const problem layers[] = {
    { 32, 64, 64, 56, 56, 3, 1, 1 },     { 32, 256, 256, 14, 14, 3, 1, 1 },
    { 32, 256, 256, 28, 28, 3, 2, 1 },   { 32, 512, 512, 14, 14, 3, 2, 1 },
    { 32, 512, 512, 7, 7, 3, 1, 1 },     { 32, 2048, 512, 7, 7, 1, 1, 0 },
    { 32, 2048, 1024, 14, 14, 1, 2, 0 }, { 128, 512, 512, 1, 1, 3, 1, 1 },
    { 128, 64, 64, 8, 8, 3, 1, 1 },
};

static void layers_are_divided_evenly(void **state)
{
    (void)state;
    for (size_t i = 0; td_grad_w_loops_get() && i < sizeof layers / sizeof layers[0]; i++) {
        td_graph *g = graph_of(&layers[i]);
        const td_node *n = node_of(g);
        expect_ok(td_native_conv_grad_w.accepts(n));
        for (int threads = 1; threads <= THREADS_MAX; threads++) {
            const td_work_share s = td_native_conv_grad_w.share(n, threads);
            assert_true(s.largest >= s.mean * 0.999);
            if (s.largest > s.mean * 1.25 && s.largest - s.mean > EXCESS_MAX)
                fail_msg("layer %d, %d threads: %.0f of %.0f", (int)i, threads, s.largest, s.mean);
        }
        td_graph_free(g);
    }
}

static void is_refused(const problem *p)
{
    td_graph *g = graph_of(p);
    assert_int_equal(td_native_conv_grad_w.accepts(node_of(g)), TD_ENOKERNEL);
    td_graph_free(g);
}

static void what_onednn_does_as_fast_is_left_to_it(void **state)
{
    (void)state;
    is_refused(&(problem){ 32, 64, 64, 56, 56, 1, 1, 0 });   /* a point, large images */
    is_refused(&(problem){ 32, 128, 128, 7, 7, 1, 1, 0 });   /* a point, few channels */
    is_refused(&(problem){ 32, 128, 128, 28, 28, 3, 1, 1 }); /* large images */
    is_refused(&(problem){ 1, 64, 64, 56, 56, 3, 1, 1 });    /* no pair of images */
    is_refused(&(problem){ 32, 64, 24, 56, 56, 3, 1, 1 });   /* no whole blocks */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_whole_numbers_are_exact),
        cmocka_unit_test(bits_do_not_depend_on_the_threads),
        cmocka_unit_test(layers_are_divided_evenly),
        cmocka_unit_test(what_onednn_does_as_fast_is_left_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
