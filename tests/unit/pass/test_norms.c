/*
 * test_norms.c -- norms that convolutions compute: the same results, whatever the target supports
 *
 * Device `ref` runs graphs of halves as they are and rounds each result once.
 */
#include "support/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "runtime/device.h"
#include "support/graphs.h"
#include "tandem/program.h"

enum { IMAGE = 4 * 8 * 6 * 6, N_OUTPUTS = 9 };

#define IMAGES(d) "%x:" d "[4,8,6,6] = input\n%dr:" d "[4,8,6,6] = input\n"
#define FILTERS(d)                                                                                 \
    "%w:" d "[16,8,3,3] = param {init=normal, scale=0.2}\n"                                        \
    "%u:" d "[8,16,1,1] = param {init=normal, scale=0.3}\n"
#define VECTORS                                                                                    \
    "%g:f32[16] = param {init=normal, scale=1}\n%b:f32[16] = param {init=normal, scale=0.5}\n"     \
    "%g2:f32[8] = param {init=normal, scale=1}\n%b2:f32[8] = param {init=normal, scale=0.5}\n"
#define BLOCK                                                                                      \
    "%c = conv2d %x, %w {pad=1}\n"                                                                 \
    "%y, %m, %v, %k = batch_norm_relu %c, %g, %b {eps=0.01}\n"                                     \
    "%d = conv2d %y, %u\n"                                                                         \
    "%r, %m2, %v2, %k2 = batch_norm_add_relu %d, %g2, %b2, %x\n"                                   \
    "%dd, %dg2, %db2, %dx = batch_norm_add_relu_grad %dr, %k2, %d, %g2, %m2, %v2\n"                \
    "%du = conv2d_grad_w %dd, %y, %u\n"                                                            \
    "%dy = conv2d_grad_x %dd, %u, %y\n"                                                            \
    "%dc, %dg, %db = batch_norm_relu_grad %dy, %k, %c, %g, %m, %v {eps=0.01}\n"                    \
    "%dw = conv2d_grad_w %dc, %x, %w {pad=1}\n"
#define OUTPUTS                                                                                    \
    "output r = %r\noutput du = %du\noutput dw = %dw\noutput dg = %dg\noutput db = %db\n"          \
    "output dg2 = %dg2\noutput m = %m\noutput v = %v\noutput v2 = %v2\n"

static const char *const outputs[N_OUTPUTS] = {
    "r", "du", "dw", "dg", "db", "dg2", "m", "v", "v2"
};
static const char block_f16[] = IMAGES("f16") FILTERS("f16") VECTORS BLOCK OUTPUTS;
static const char block_bf16[] = IMAGES("bf16") FILTERS("bf16") VECTORS BLOCK OUTPUTS;

/* a device that refuses an op */
static td_target inner;
static const td_op *refused;

static bool supports(void *ctx, const td_node *n)
{
    return n->op != refused && inner.supports(ctx, n);
}

static td_device *open_device(bool fuses_norms, const td_op *refused_op)
{
    td_device *dev;
    expect_ok(td_device_open("ref", &dev));
    inner = dev->target;
    refused = refused_op;
    dev->target.supports = supports;
    dev->target.fuses_norms = fuses_norms;
    return dev;
}

typedef struct {
    double *value[N_OUTPUTS];
    int64_t count[N_OUTPUTS];
    char *text;
} results;

static void bind_image(td_program *p, const char *name, uint64_t seed, bool is_bf16, uint16_t *to)
{
    td_rng r = td_rng_make(seed, TD_RNG_INIT, 0, 0);
    for (int i = 0; i < IMAGE; i++) {
        const float x = (float)td_rng_normal(&r);
        to[i] = is_bf16 ? td_f32_to_bf16(x) : td_f32_to_f16(x);
    }
    expect_ok(td_program_bind(p, name, to));
}

static void read_output(const td_program *p, int i, bool is_bf16, results *out)
{
    td_type t;
    const void *from = td_program_output(p, outputs[i], &t);
    out->count[i] = td_type_count(&t);
    out->value[i] = malloc((size_t)out->count[i] * sizeof(double));
    assert_non_null(out->value[i]);
    for (int64_t k = 0; k < out->count[i]; k++)
        out->value[i][k] = t.dtype == TD_DT_F32 ? (double)((const float *)from)[k]
                           : is_bf16 ? (double)td_bf16_to_f32(((const uint16_t *)from)[k])
                                     : (double)td_f16_to_f32(((const uint16_t *)from)[k]);
}

static results run(const char *text, bool is_bf16, bool fuses_norms, const td_op *refused_op)
{
    static uint16_t x[IMAGE], dr[IMAGE];
    results out = { .text = NULL };
    td_device *dev = open_device(fuses_norms, refused_op);
    td_graph *g = td_test_graph(text);
    td_program *p;
    expect_ok(td_compile(g, dev, &(td_compile_opts){ 0 }, &p));
    expect_ok(td_program_init(p, 7));
    bind_image(p, "x", 1, is_bf16, x);
    bind_image(p, "dr", 2, is_bf16, dr);
    expect_ok(td_program_run(p));
    for (int i = 0; i < N_OUTPUTS; i++)
        read_output(p, i, is_bf16, &out);
    expect_ok(td_program_print(p, &out.text));
    td_program_free(p);
    td_graph_free(g);
    td_device_close(dev);
    return out;
}

static void release(results *r)
{
    for (int i = 0; i < N_OUTPUTS; i++)
        free(r->value[i]);
    td_text_free(r->text);
}

/* the root of the mean square of the difference, over that of `a` */
static double distance(const double *a, const double *b, int64_t n)
{
    double gap = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        gap += (a[i] - b[i]) * (a[i] - b[i]);
        size += a[i] * a[i];
    }
    return sqrt(gap / size);
}

static void expect_close(const results *a, const results *b, double limit)
{
    for (int i = 0; i < N_OUTPUTS; i++) {
        assert_int_equal(a->count[i], b->count[i]);
        const double gap = distance(a->value[i], b->value[i], a->count[i]);
        if (!(gap < limit))
            fail_msg("%s differs by %g of its size, wanted less than %g", outputs[i], gap, limit);
    }
}

static void expect_ops(const char *text, const char *const *there, const char *absent)
{
    for (; *there; there++)
        if (!strstr(text, *there))
            fail_msg("no %s in\n%s", *there, text);
    if (strstr(text, absent))
        fail_msg("%s in\n%s", absent, text);
}

static void convolutions_compute_norms(void **state)
{
    (void)state;
    static const char *const there[] = { "conv2d_statistics",
                                         "conv2d_scale_relu_grad_w",
                                         "batch_norm_scale_relu_grad",
                                         "batch_norm_add_relu_given",
                                         "to=f16",
                                         NULL };
    results a = run(block_f16, false, false, NULL), b = run(block_f16, false, true, NULL);
    expect_ops(b.text, there, " = batch_norm_relu_infer");
    assert_null(strstr(a.text, "conv2d_statistics"));
    expect_close(&a, &b, 4e-3);
    release(&a);
    release(&b);
}

static void what_a_filter_gradient_cannot_compute_is_computed_again(void **state)
{
    (void)state;
    static const char *const there[] = { "conv2d_statistics", "batch_norm_relu_infer",
                                         "batch_norm_scale_relu_grad", " = conv2d_grad_w", NULL };
    results a = run(block_bf16, true, false, NULL);
    results b = run(block_bf16, true, true, &td_op_conv2d_scale_relu_grad_w);
    expect_ops(b.text, there, "conv2d_scale_relu_grad_w");
    expect_close(&a, &b, 2e-2);
    release(&a);
    release(&b);
}

static void without_a_kernel_nothing_changes(void **state)
{
    (void)state;
    static const char *const there[] = { "batch_norm_relu ", "batch_norm_add_relu ", NULL };
    results a = run(block_f16, false, false, NULL);
    results b = run(block_f16, false, true, &td_op_conv2d_statistics);
    expect_ops(b.text, there, "batch_norm_statistics");
    assert_string_equal(a.text, b.text);
    release(&a);
    release(&b);
}

static void other_devices_do_not_fuse(void **state)
{
    (void)state;
    static const char *const names[] = { "cpu", "ref" };
    for (int i = 0; i < 2; i++) {
        td_device *dev;
        expect_ok(td_device_open(names[i], &dev));
        assert_false(dev->target.fuses_norms);
        td_device_close(dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_compute_norms),
        cmocka_unit_test(what_a_filter_gradient_cannot_compute_is_computed_again),
        cmocka_unit_test(without_a_kernel_nothing_changes),
        cmocka_unit_test(other_devices_do_not_fuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
