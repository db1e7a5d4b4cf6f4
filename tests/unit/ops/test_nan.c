/*
 * test_nan.c -- a number that is none stays none through every kernel with a relu in it, and
 * through pooling
 *
 * Networks that diverged or overflowed must be seen to have: max(NaN, 0) is NaN here, as in the
 * reference kernels, whatever the instruction set's maximum makes of it.  Each row is a node in a
 * program of two images; the first pixel of the first image is NaN, and so must be what it reaches,
 * while the second image has finite results.
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "ir/op.h"
#include "support/graphs.h"
#include "tandem/program.h"

enum { N = 2, TEXT = 1024 };

typedef struct {
    const char *dtype;
    int channels, side;
    const char *params; /* more of the text; C stands for the channels, T for the type */
    const char *node;   /* of %x and params; gives %y */
    const char *skip;   /* passes to leave out */
} row;

#define NORM   "%g:T[C] = param\n%b:T[C] = param\n"
#define STATS  "%m:T[C] = param {role=stat}\n%v:T[C] = param {role=stat}\n"
#define FILTER "%w:T[C,C,3,3] = param\n%b:T[C] = param\n"
#define SMALL  "%w:T[C,C,1,1] = param\n%b:T[C] = param\n"
#define MATRIX "%w:T[8,8] = param\n%b:T[8] = param\n"
#define ROWS   "%q = reshape %x {shape=-1:8}\n"
#define GROUPS "%w:T[C,4,3,3] = param\n%b:T[C] = param\n"

/* clang-format off */
static const row rows[] = {
    { "f32",  32, 8, "", "%y = relu %x", NULL },
    { "bf16", 32, 8, "", "%y = relu %x", NULL },
    { "f32",   5, 3, "", "%y = relu %x", NULL },
    { "f32",  32, 8, "", "%y = relu6 %x", NULL },
    /* training */
    { "f32",  32, 8, NORM, "%y, %1, %2, %3 = batch_norm_relu %x, %g, %b", NULL },
    { "f32",  32, 8, NORM, "%y, %1, %2, %3 = batch_norm_relu %x, %g, %b {relu6=true}", NULL },
    { "f32",  32, 8, NORM, "%y, %1, %2, %3 = batch_norm_add_relu %x, %g, %b, %x", NULL },
    /* inference: norms */
    { "f32",  32, 8, NORM STATS, "%y = batch_norm_relu_infer %x, %g, %b, %m, %v", NULL },
    { "f32",  32, 8, NORM STATS,
      "%y = batch_norm_relu_infer %x, %g, %b, %m, %v {relu6=true}", NULL },
    { "f32",  32, 8, NORM STATS,
      "%y = batch_norm_add_relu_infer %x, %g, %b, %m, %v, %x", NULL },
    { "f32",  32, 8, NORM STATS,
      "%y, %1 = batch_norm_add_relu_given %x, %g, %b, %m, %v, %x", NULL },
    /* inference: convolutions of 1x1 and 3x3, with a residual, strided, small, in half */
    { "f32",  64, 8, SMALL,  "%y = conv2d_fused %x, %w, %b {relu=true}", NULL },
    { "f32",  64, 8, SMALL,  "%y = conv2d_fused %x, %w, %b, %x {relu=true}", NULL },
    { "bf16", 64, 8, SMALL,  "%y = conv2d_fused %x, %w, %b {relu=true}", NULL },
    { "bf16", 64, 8, SMALL,  "%y = conv2d_fused %x, %w, %b, %x {relu=true}", NULL },
    { "f32",  64, 8, SMALL,  "%y = conv2d_fused %x, %w, %b {stride=2, relu=true}", NULL },
    { "f32",  64, 8, FILTER, "%y = conv2d_fused %x, %w, %b {pad=1, relu=true}", "winograd" },
    { "f32",  64, 8, FILTER, "%y = conv2d_fused %x, %w, %b, %x {pad=1, relu=true}", "winograd" },
    { "bf16", 64, 8, FILTER, "%y = conv2d_fused %x, %w, %b {pad=1, relu=true}", NULL },
    { "f32",  64, 8, FILTER, "%y = conv2d_fused %x, %w, %b {stride=2, pad=1, relu=true}", NULL },
    { "f32",   3, 9, FILTER, "%y = conv2d_fused %x, %w, %b {pad=1, relu=true}", NULL },
    { "f32",  64, 8, SMALL,  "%y = conv2d_fused %x, %w, %b {relu=true, relu6=true}", NULL },
    { "f32",  64, 8, SMALL,  "%y = conv2d_fused %x, %w, %b, %x {relu=true, relu6=true}", NULL },
    { "bf16", 64, 8, SMALL,  "%y = conv2d_fused %x, %w, %b {relu=true, relu6=true}", NULL },
    { "f32",  64, 8, FILTER,
      "%y = conv2d_fused %x, %w, %b {pad=1, relu=true, relu6=true}", "winograd" },
    { "bf16", 64, 8, FILTER, "%y = conv2d_fused %x, %w, %b {pad=1, relu=true, relu6=true}", NULL },
    { "f32",   3, 9, FILTER, "%y = conv2d_fused %x, %w, %b {pad=1, relu=true, relu6=true}", NULL },
    /* Winograd, which needs no fewer tiles */
    { "f32",  64, 28, FILTER, "%y = conv2d_fused %x, %w, %b {pad=1, relu=true}", NULL },
    { "f32",  64, 28, FILTER, "%y = conv2d_fused %x, %w, %b {pad=1, relu=true, relu6=true}", NULL },
    /* groups of 4 channels */
    { "f32", 128, 8, GROUPS, "%y = conv2d_fused %x, %w, %b {groups=32, pad=1, relu=true}", NULL },
    { "bf16",128, 8, GROUPS, "%y = conv2d_fused %x, %w, %b {groups=32, pad=1, relu=true}", NULL },
    /* pooling, in channel blocks and not */
    { "f32",  32, 8, "", "%y, %1 = max_pool2d %x {kernel=3, stride=2, pad=1}", NULL },
    { "bf16", 32, 8, "", "%y, %1 = max_pool2d %x {kernel=3, stride=2, pad=1}", NULL },
    { "f32",   5, 9, "", "%y, %1 = max_pool2d %x {kernel=3, stride=2, pad=1}", NULL },
    { "bf16",  5, 9, "", "%y, %1 = max_pool2d %x {kernel=3, stride=2, pad=1}", NULL },
    { "f32",  64, 8, SMALL,
      "%1 = conv2d %x, %w\n%y, %2 = max_pool2d %1 {kernel=3, stride=2, pad=1}", NULL },
    { "bf16", 64, 8, SMALL,
      "%1 = conv2d %x, %w\n%y, %2 = max_pool2d %1 {kernel=3, stride=2, pad=1}", NULL },
    { "f32",  32, 8, "", "%y = global_avg_pool %x", NULL },
    /* gelu in a linear layer */
    { "f32",  32, 8, MATRIX, ROWS "%y = linear_fused %q, %w, %b {gelu=true}", NULL },
    { "bf16", 32, 8, MATRIX, ROWS "%y = linear_fused %q, %w, %b {gelu=true}", NULL },
    { "f32",  32, 8, MATRIX, ROWS "%y = linear_fused %q, %w, %b, %q", NULL },
};
/* clang-format on */

static void add(td_text *t, const row *r, const char *text)
{
    for (; *text; text++)
        if (*text == 'T')
            td_text_add(t, "%s", r->dtype);
        else if (*text == 'C')
            td_text_add(t, "%d", r->channels);
        else
            td_text_add_bytes(t, text, 1);
}

static td_graph *graph_of(const row *r)
{
    td_text t = { 0 };
    td_text_add(&t, "%%x:%s[%d,%d,%d,%d] = input\n", r->dtype, N, r->channels, r->side, r->side);
    add(&t, r, r->params);
    td_text_add(&t, "%s\noutput y = %%y\n", r->node);
    assert_int_equal(td_text_status(&t), TD_OK);
    td_graph *g = td_test_graph(td_text_get(&t));
    td_text_release(&t);
    return g;
}

static void set_params(td_program *p)
{
    for (int i = 0; i < td_program_param_count(p); i++) {
        const td_type t = td_program_param_type(p, i);
        const int64_t n = td_type_count(&t);
        float *data = td_alloc((size_t)n, sizeof *data);
        assert_non_null(data);
        for (int64_t k = 0; k < n; k++)
            data[k] = 0.5F;
        expect_ok(td_program_set(p, td_program_param_name(p, i), data));
        td_free(data);
    }
}

/* ones, but for the first, in the row's type */
static void *images_of(const row *r, int64_t n)
{
    float *f = td_alloc((size_t)n, sizeof *f);
    uint16_t *half = td_alloc((size_t)n, sizeof *half);
    assert_true(f && half);
    for (int64_t i = 0; i < n; i++) {
        f[i] = i ? 1 : NAN;
        half[i] = td_f32_to_bf16(f[i]);
    }
    const bool is_half = strcmp(r->dtype, "bf16") == 0;
    td_free(is_half ? (void *)f : (void *)half);
    return is_half ? (void *)half : (void *)f;
}

static float number_at(const void *data, td_dtype dtype, int64_t i)
{
    return dtype == TD_DT_F32 ? ((const float *)data)[i]
                              : td_bf16_to_f32(((const uint16_t *)data)[i]);
}

static const char *kernel_of(const td_program *p)
{
    const char *name = "";
    for (int i = 0; i < td_program_node_count(p); i++)
        if (td_program_node(p, i).kernel && !strstr(td_program_node(p, i).op, "reorder"))
            name = td_program_node(p, i).kernel;
    return name;
}

static bool is_of_the_batch(const row *r)
{
    return strstr(r->node, "batch_norm") && !strstr(r->node, "infer");
}

static bool keeps_nan(const char *device, const row *r)
{
    td_device *dev;
    td_program *p;
    td_type t;
    td_graph *g = graph_of(r);
    expect_ok(td_device_open(device, &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .skip = r->skip }, &p));
    td_graph_free(g);
    set_params(p);
    void *images = images_of(r, (int64_t)N * r->channels * r->side * r->side);
    expect_ok(td_program_bind(p, "x", images));
    expect_ok(td_program_run(p));
    const void *y = td_program_output(p, "y", &t);
    const int64_t second = td_type_count(&t) / N;
    const bool is_good = isnan(number_at(y, t.dtype, 0)) &&
                         (is_of_the_batch(r) || isfinite(number_at(y, t.dtype, second)));
    if (!is_good)
        print_error("%s, %s by %s: %g and %g\n", device, r->node, kernel_of(p),
                    (double)number_at(y, t.dtype, 0), (double)number_at(y, t.dtype, second));
    td_program_free(p);
    td_device_close(dev);
    td_free(images);
    return is_good;
}

static void no_relu_hides_it(void **state)
{
    int n_bad = 0;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        n_bad += !keeps_nan("cpu", &rows[i]);
        n_bad += !keeps_nan("ref", &rows[i]);
    }
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_relu_hides_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
