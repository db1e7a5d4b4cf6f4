/*
 * test_native_grouped.c -- grouped convolutions on channel blocks: sums of small whole numbers,
 * which are exact in any order and type, and the layouts of a network made of them
 *
 * On a machine without the instructions there is nothing to test; tests/ops/grouped.lines has the
 * comparisons with the reference.
 */
#include "support/expect.h"

#include <math.h>
#include <string.h>

#include "backend/native/conv/native_grouped.h"
#include "base/half.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "runtime/device.h"
#include "runtime/kernel_choice.h"
#include "support/graphs.h"

/* --- one convolution in plain order ----------------------------------------------------------- */

enum { N = 3, C = 64, SIDE_MAX = 17, X_MAX = N * C * SIDE_MAX * SIDE_MAX, W_MAX = C * 32 * 9 };

/* plain [N, C, H, W], [C, width, 3, 3] and [N, C, P, Q], and what the loops make of them */
typedef struct {
    float x[X_MAX], w[W_MAX], y[X_MAX], bias[C];
    float want[X_MAX], want_w[W_MAX];
    _Alignas(64) float xb[X_MAX];
    _Alignas(64) float wb[W_MAX];
    _Alignas(64) float yb[X_MAX];
    _Alignas(64) float transposed[W_MAX];
} area;

static int64_t lanes; /* of the loops under test */

static td_grouped shape_of(td_dtype dtype, int width, int stride, int64_t H, int64_t W)
{
    td_grouped v = { .dtype = dtype,
                     .width = width,
                     .lanes = (int)lanes,
                     .stride = stride,
                     .N = N,
                     .CB = C / lanes,
                     .H = H,
                     .W = W,
                     .P = (H - 1) / stride + 1,
                     .Q = (W - 1) / stride + 1,
                     .blocks = width > lanes ? width / lanes : 1 };
    v.units = v.CB / v.blocks;
    v.x_plane = H * W * lanes;
    v.y_plane = v.P * v.Q * lanes;
    return v;
}

static void fill(td_rng *r, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(td_rng_u32(r) % 3) - 1;
}

static void set(td_dtype d, void *to, int64_t i, float value)
{
    if (d == TD_DT_F32)
        ((float *)to)[i] = value;
    else
        ((uint16_t *)to)[i] = td_f32_to_bf16(value);
}

static float get(td_dtype d, const void *from, int64_t i)
{
    return d == TD_DT_F32 ? ((const float *)from)[i] : td_bf16_to_f32(((const uint16_t *)from)[i]);
}

/* element (n, c, i) of planes of `area` pixels: blocks of channels from abcd */
static int64_t blocked(int64_t k, int64_t pixels)
{
    const int64_t nc = k / pixels, c = nc % C;
    return ((nc / C * (C / lanes) + c / lanes) * pixels + k % pixels) * lanes + c % lanes;
}

/* element (k, i, tap): the layouts of native_grouped.h */
static int64_t filter_at(td_dtype d, int64_t width, int64_t k, int64_t i, int64_t tap)
{
    const int64_t first = (k / lanes * 9 + tap) * width * lanes, lane = k % lanes;
    if (lanes == 8 && width > 8) /* [CB, J / 8, 9, 8, 8] */
        return (((k / 8 * width + i) / 8 * 9 + tap) * 8 + i % 8) * 8 + lane;
    return d == TD_DT_F32 ? first + i * lanes + lane : first + i / 2 * 2 * lanes + lane * 2 + i % 2;
}

static void put_planes(td_dtype d, const float *from, int64_t pixels, void *to)
{
    for (int64_t k = 0; k < N * C * pixels; k++)
        set(d, to, blocked(k, pixels), from[k]);
}

static void put_filter(td_dtype d, int64_t width, const float *from, void *to)
{
    for (int64_t k = 0; k < C; k++)
        for (int64_t i = 0; i < width; i++)
            for (int64_t tap = 0; tap < 9; tap++)
                set(d, to, filter_at(d, width, k, i, tap), from[(k * width + i) * 9 + tap]);
}

/* visit(x, w, y) for every product of the convolution, as indices of plain order */
static void each_product(const td_grouped *v, area *m,
                         void (*visit)(area *m, int64_t x, int64_t w, int64_t y))
{
    for (int64_t y = 0; y < N * C * v->P * v->Q; y++) {
        const int64_t q = y % v->Q, p = y / v->Q % v->P, nk = y / v->Q / v->P, k = nk % C;
        for (int64_t t = 0; t < v->width * 9; t++) {
            const int64_t h = p * v->stride + t / 3 % 3 - 1, w = q * v->stride + t % 3 - 1;
            const int64_t c = k / v->width * v->width + t / 9;
            if (h >= 0 && h < v->H && w >= 0 && w < v->W)
                visit(m, ((nk - k + c) * v->H + h) * v->W + w, k * v->width * 9 + t, y);
        }
    }
}

static void to_y(area *m, int64_t x, int64_t w, int64_t y)
{
    m->want[y] += m->x[x] * m->w[w];
}

static void to_x(area *m, int64_t x, int64_t w, int64_t y)
{
    m->want[x] += m->y[y] * m->w[w];
}

static void to_w(area *m, int64_t x, int64_t w, int64_t y)
{
    m->want_w[w] += m->y[y] * m->x[x];
}

static void expect_planes(const td_grouped *v, const area *m, const void *got, int64_t pixels)
{
    for (int64_t k = 0; k < N * C * pixels; k++)
        if (get(v->dtype, got, blocked(k, pixels)) != m->want[k])
            fail_msg("width %d stride %d: element %lld is %g, not %g", v->width, v->stride,
                     (long long)k, (double)get(v->dtype, got, blocked(k, pixels)),
                     (double)m->want[k]);
}

static void check_forward(const td_grouped *v, const td_grouped_loops *f, area *m)
{
    for (int64_t y = 0; y < N * C * v->P * v->Q; y++)
        m->want[y] = m->bias[y / v->P / v->Q % C];
    each_product(v, m, to_y);
    for (int64_t y = 0; y < N * C * v->P * v->Q; y++)
        m->want[y] = fmaxf(m->want[y], 0);
    const td_grouped_end end = { .bias = m->bias, .relu = true };
    for (int64_t n = 0; n < N; n++)
        for (int64_t unit = 0; unit < v->units; unit++)
            f->forward(v, n, unit, m->xb, m->wb, &end, m->yb);
    expect_planes(v, m, m->yb, v->P * v->Q);
}

static void check_grad_x(const td_grouped *v, const td_grouped_loops *f, area *m)
{
    memset(m->want, 0, sizeof m->want);
    each_product(v, m, to_x);
    for (int64_t cb = 0; cb < v->CB; cb++)
        f->transpose_filter(v, cb, m->wb, m->transposed);
    put_planes(v->dtype, m->y, v->P * v->Q, m->yb);
    for (int64_t n = 0; n < N; n++)
        for (int64_t unit = 0; unit < v->units; unit++)
            f->grad_x(v, n, unit, m->yb, m->transposed, m->xb);
    expect_planes(v, m, m->xb, v->H * v->W);
}

/* on top of what is there: a part of the images after the other */
static void check_grad_w(const td_grouped *v, const td_grouped_loops *f, area *m)
{
    memset(m->want_w, 0, sizeof m->want_w);
    memset(m->wb, 0, sizeof m->wb);
    each_product(v, m, to_w);
    put_planes(v->dtype, m->x, v->H * v->W, m->xb);
    for (int64_t unit = 0; unit < v->units; unit++) {
        float *dw = m->wb + unit * v->blocks * 9 * v->width * lanes;
        f->grad_w(v, 0, 2, unit, m->yb, m->xb, dw);
        f->grad_w(v, 2, N, unit, m->yb, m->xb, dw);
    }
    for (int64_t k = 0; k < C; k++)
        for (int64_t i = 0; i < v->width; i++)
            for (int64_t tap = 0; tap < 9; tap++)
                assert_true(m->wb[filter_at(TD_DT_F32, v->width, k, i, tap)] ==
                            m->want_w[(k * v->width + i) * 9 + tap]);
}

static void whole_numbers_are_exact(void **state)
{
    static const td_dtype dtypes[] = { TD_DT_F32, TD_DT_BF16 };
    static const int64_t sides[][2] = { { 17, 15 }, { 4, 17 }, { 2, 8 }, { 3, 1 } };
    td_rng r = td_rng_make(5, TD_RNG_TEST, 0, 0);
    area *m = td_alloc(1, sizeof *m);
    assert_non_null(m);
    (void)state;
    for (size_t i = 0; i < 2 * 4 * 2 * 4; i++) {
        const td_grouped_loops *f = td_grouped_loops_for(dtypes[i % 2]);
        if (!f)
            continue;
        lanes = f->lanes;
        const td_grouped v = shape_of(dtypes[i % 2], 4 << i / 2 % 4, 1 + (int)(i / 8 % 2),
                                      sides[i / 16][0], sides[i / 16][1]);
        fill(&r, m->x, N * C * v.H * v.W);
        fill(&r, m->w, C * v.width * 9);
        fill(&r, m->y, N * C * v.P * v.Q);
        fill(&r, m->bias, C);
        put_planes(v.dtype, m->x, v.H * v.W, m->xb);
        put_filter(v.dtype, v.width, m->w, m->wb);
        check_forward(&v, f, m);
        check_grad_x(&v, f, m);
        check_grad_w(&v, f, m);
    }
    td_free(m);
}

/* --- a network -------------------------------------------------------------------------------- */

static const char network[] = "%x:f32[2,64,16,16] = input\n"
                              "%g:f32[64] = param {init=ones}\n"
                              "%b:f32[64] = param\n"
                              "%w1:f32[64,64,1,1] = param {init=normal, scale=0.1}\n"
                              "%w2:f32[64,4,3,3] = param {init=normal, scale=0.1}\n"
                              "%w3:f32[64,64,1,1] = param {init=normal, scale=0.1}\n"
                              "%v:f32[64,4,3,3] = param {role=momentum}\n"
                              "%lr:f32[] = input\n"
                              "%c1 = conv2d %x, %w1\n"
                              "%n1, %m1, %s1 = batch_norm %c1, %g, %b\n"
                              "%r1 = relu %n1\n"
                              "%c2 = conv2d %r1, %w2 {pad=1, groups=16}\n"
                              "%n2, %m2, %s2 = batch_norm %c2, %g, %b\n"
                              "%r2 = relu %n2\n"
                              "%c3 = conv2d %r2, %w3\n"
                              "%p = global_avg_pool %c3\n"
                              "%l = mean %p\n"
                              "%d = gradient %l, %w2\n"
                              "%e = gradient %l, %w1\n"
                              "sgd %w2, %v, %d, %lr {momentum=0.9}\n"
                              "output e = %e\n";

static bool is_conv(const td_node *n)
{
    return strncmp(n->op->name, "conv2d", 6) == 0;
}

/* between the image that comes in and the pooling there is one layout */
static void a_network_needs_no_reorders(void **state)
{
    td_device *dev;
    td_graph *out, *g = td_test_graph(network);
    int n_grouped = 0;
    (void)state;
    if (!td_grouped_loops_for(TD_DT_F32) || !TD_HAVE_DNNL) {
        td_graph_free(g);
        skip();
    }
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_pass_run_all(g, &dev->target, &(td_pass_opts){ 0 }, &out));
    for (int i = 0; i < out->n_nodes; i++) {
        const td_node *n = out->nodes[i];
        if (n->op == &td_op_reorder && n->out[0]->type.dim[2] == 16)
            assert_true(n->in[0]->producer->op == &td_op_input);
        if (is_conv(n) && ((const td_conv_attr *)n->attr)->groups == 16)
            n_grouped +=
                strncmp(td_device_select(dev, n, NULL)->name, "native_grouped_conv", 16) == 0;
    }
    assert_int_equal(n_grouped, 3);
    td_graph_free(out);
    td_graph_free(g);
    td_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_are_exact),
        cmocka_unit_test(a_network_needs_no_reorders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
