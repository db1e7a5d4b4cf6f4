/*
 * test_native_depthwise.c -- depthwise convolutions: rows in any division give the bits of whole
 * planes, the work is divided evenly among 1 to 128 threads, networks need no reorders, and small
 * planes no matrix products
 *
 * On a machine without the loops there is nothing to test; tests/ops/depthwise.lines has the
 * comparisons with the reference.
 */
#include "support/expect.h"

#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/conv/native_depthwise.h"
#include "backend/native/simd/native_simd.h"
#include "base/half.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "runtime/device.h"
#include "runtime/kernel_choice.h"
#include "support/graphs.h"

enum { THREADS_MAX = 128, N = 2, CB = 3, SIDE_MAX = 19, L = TD_DEPTHWISE_LANES };
enum {
    IMAGES_MAX = N * CB * SIDE_MAX * SIDE_MAX * L,
    FILTERS_MAX = CB * TD_DEPTHWISE_TAPS_MAX * L
};

/* --- rows ------------------------------------------------------------------------------------- */

typedef struct {
    uint16_t x[IMAGES_MAX], w[FILTERS_MAX], want[IMAGES_MAX], got[IMAGES_MAX];
} area;

static td_depthwise shape_of(int side, int stride, int pad)
{
    td_depthwise v = { .dtype = TD_DT_BF16, .side = side, .stride = stride, .pad = pad };
    v.N = N;
    v.CB = CB;
    v.H = SIDE_MAX;
    v.W = SIDE_MAX - 2;
    v.P = (v.H + 2 * pad - side) / stride + 1;
    v.Q = (v.W + 2 * pad - side) / stride + 1;
    v.x_plane = v.H * v.W * L;
    v.y_plane = v.P * v.Q * L;
    return v;
}

static void fill(td_rng *r, uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = td_f32_to_bf16((float)td_rng_u32(r) / 4e9f - 0.5f);
}

/* rows of the result, all planes divided among `threads` */
static void compute(const td_depthwise *v, const area *m, bool is_grad_x, int threads,
                    uint16_t *out)
{
    const td_depthwise_loops *f = td_depthwise_loops_for(v->dtype);
    const td_depthwise_end nothing = { 0 };
    const td_native_planes d = { N * CB, is_grad_x ? v->H : v->P, 4, threads };
    for (int t = 0; t < threads; t++)
        for (td_native_span s = td_native_span_first(&d, t); td_native_span_next(&d, &s);) {
            const td_depthwise_rows r = { s.plane / CB, s.plane % CB, s.from, s.from + s.n };
            if (is_grad_x)
                f->grad_x(v, &r, m->x, m->w, out);
            else
                f->forward(v, &r, m->x, m->w, &nothing, out);
        }
}

static void check_rows(const td_depthwise *v, area *m, bool is_grad_x)
{
    memset(m->want, 0, sizeof m->want);
    compute(v, m, is_grad_x, 1, m->want);
    for (int threads = 2; threads <= THREADS_MAX; threads += threads < 8 ? 1 : 15) {
        memset(m->got, 0, sizeof m->got);
        compute(v, m, is_grad_x, threads, m->got);
        assert_memory_equal(m->got, m->want, sizeof m->got);
    }
}

static void rows_have_the_same_bits_in_every_division(void **state)
{
    td_rng r = td_rng_make(7, TD_RNG_TEST, 0, 0);
    area *m = td_alloc(1, sizeof *m);
    assert_non_null(m);
    (void)state;
    fill(&r, m->x, IMAGES_MAX);
    fill(&r, m->w, FILTERS_MAX);
    for (int side = 3; td_depthwise_loops_for(TD_DT_BF16) && side <= TD_DEPTHWISE_SIDE_MAX;
         side += 2)
        for (int stride = 1; stride <= 2; stride++)
            for (int pad = 0; pad < side / 2 + 1; pad++) {
                const td_depthwise v = shape_of(side, stride, pad);
                check_rows(&v, m, false);
                check_rows(&v, m, true);
            }
    td_free(m);
}

/* --- networks --------------------------------------------------------------------------------- */

#define NETWORK(dtype, size)                                                                       \
    "%x:" dtype "[32,16," size "] = input\n"                                                       \
    "%g:f32[32] = param {init=ones}\n"                                                             \
    "%b:f32[32] = param\n"                                                                         \
    "%w1:" dtype "[32,16,1,1] = param {init=normal, scale=0.1}\n"                                  \
    "%w2:" dtype "[32,1,3,3] = param {init=normal, scale=0.1}\n"                                   \
    "%w3:" dtype "[32,1,5,5] = param {init=normal, scale=0.1}\n"                                   \
    "%w4:" dtype "[64,32,1,1] = param {init=normal, scale=0.1}\n"                                  \
    "%c1 = conv2d %x, %w1\n"                                                                       \
    "%n1, %m1, %s1 = batch_norm %c1, %g, %b\n"                                                     \
    "%r1 = relu %n1\n"                                                                             \
    "%c2 = conv2d %r1, %w2 {pad=1, groups=32}\n"                                                   \
    "%n2, %m2, %s2 = batch_norm %c2, %g, %b\n"                                                     \
    "%r2 = relu %n2\n"                                                                             \
    "%c3 = conv2d %r2, %w3 {pad=2, stride=2, groups=32}\n"                                         \
    "%c4 = conv2d %c3, %w4\n"                                                                      \
    "%p = global_avg_pool %c4\n"                                                                   \
    "%l = mean %p\n"                                                                               \
    "%d1 = gradient %l, %w1\n"                                                                     \
    "%d2 = gradient %l, %w2\n"                                                                     \
    "%d3 = gradient %l, %w3\n"                                                                     \
    "output d1 = %d1\n"                                                                            \
    "output d2 = %d2\n"                                                                            \
    "output d3 = %d3\n"

static bool is_depthwise(const td_node *n)
{
    return strncmp(n->op->name, "conv2d", 6) == 0 && ((const td_conv_attr *)n->attr)->groups == 32;
}

#define RATIO_MAX  1.25
#define EXCESS_MAX (TD_NATIVE_CHUNK * 16)

/* filter gradients are 64 jobs, as those of grouped convolutions */
static void check_share(const td_kernel *k, const td_node *n)
{
    const bool is_grad_w = n->op == &td_op_conv2d_grad_w;
    for (int threads = 1; threads <= THREADS_MAX; threads++) {
        const td_work_share s = k->share(n, threads);
        assert_true(s.largest >= s.mean * 0.999);
        if (s.largest - s.mean > EXCESS_MAX)
            assert_true(s.largest <= s.mean * (is_grad_w ? 2 : RATIO_MAX));
    }
}

static void check_network(const char *text, const char *name, int n_native)
{
    td_device *dev;
    td_graph *out, *g = td_test_graph(text);
    int n = 0;
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_pass_run_all(g, &dev->target, &(td_pass_opts){ 0 }, &out));
    for (int i = 0; i < out->n_nodes; i++) {
        const td_node *node = out->nodes[i];
        if (node->op == &td_op_reorder && node->out[0]->type.dim[2] > 5)
            assert_true(node->in[0]->producer->op == &td_op_input);
        if (node->op->is_leaf || !is_depthwise(node))
            continue;
        const td_kernel *k = td_device_select(dev, node, NULL);
        assert_non_null(k);
        if (strncmp(k->name, name, strlen(name)) == 0) {
            check_share(k, node);
            n++;
        }
    }
    assert_int_equal(n, n_native);
    td_graph_free(out);
    td_graph_free(g);
    td_device_close(dev);
}

/* between the image that comes in and the pooling there is one layout */
static void networks_need_no_reorders_and_divide_their_work(void **state)
{
    (void)state;
    if (!td_depthwise_loops_for(TD_DT_F32) || !TD_HAVE_DNNL)
        skip();
    /* the filter gradient of 5 x 5 */
    check_network(NETWORK("f32", "56,56"), "native_depthwise_conv", 1);
    /* the images; filter gradients only with wide */
    check_network(NETWORK("bf16", "56,56"), "native_depthwise_conv", 4);
}

/* whatever the machine: oneDNN's direct kernels need more rows */
static void filter_gradients_of_small_planes_are_native(void **state)
{
    (void)state;
    if (!TD_HAVE_DNNL)
        skip();
    check_network(NETWORK("f32", "2,2"), "native_depthwise_tiles_grad_w", 2);
    check_network(NETWORK("f32", "1,1"), "native_depthwise_tiles_grad_w", 2);
}

/* oneDNN has kernels for 3 x 3 there */
static void filter_gradients_of_large_filters_are_native(void **state)
{
    (void)state;
    if (!TD_HAVE_DNNL || strncmp(td_half_simd_at(0)->name, "avx512", 6) != 0)
        skip();
    check_network(NETWORK("f32", "56,56"), "native_depthwise_tiles_grad_w", 1);
    check_network(NETWORK("f32", "14,14"), "native_depthwise_tiles_grad_w", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_same_bits_in_every_division),
        cmocka_unit_test(networks_need_no_reorders_and_divide_their_work),
        cmocka_unit_test(filter_gradients_of_small_planes_are_native),
        cmocka_unit_test(filter_gradients_of_large_filters_are_native),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
