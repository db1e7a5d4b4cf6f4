/*
 * test_onnx_qdq.c -- the QDQ form of a quantized network, against the integers; what is refused
 */
#include "onnx/onnx_qdq.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "onnx/onnx_export.h"
#include "ops/ops.h"
#include "optim/training_graph.h"
#include "support/expect.h"

#define NET "examples/small_cnn.td"
enum { BATCH = 2, IMAGE = 3 * 32 * 32, LOGITS = 10 * BATCH };

/* the network with its second convolution quantized */
typedef struct {
    td_device *dev;
    td_graph *graph;
    td_program *wide, *integers;
    td_onnx_qdq qdq;
    td_onnx *onnx;
} sample;

static const td_activation_range range = { .weight = "conv2.weight", .input = 4, .output = 5 };
static const td_activation_ranges ranges = { .n = 1, .ranges = &range };

static td_status open_sample(sample *s)
{
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    const td_amp_opts int8 = { .precision = TD_PRECISION_INT8,
                               .ranges = &ranges,
                               .is_silent = true };
    const td_onnx_opts o = { .batch_size = BATCH };
    td_model_opts model;
    td_model_defaults(&model);
    model.model = NET;
    TD_TRY(td_model_resolve(&model));
    TD_TRY(td_device_open("ref", &s->dev));
    TD_TRY(td_inference_graph(&model, BATCH, NULL, &s->graph));
    TD_TRY(td_compile(s->graph, s->dev, &(td_compile_opts){ .amp = &float32 }, &s->wide));
    /* without int8_ends, which may round the last layer's weight to bf16 */
    const td_compile_opts opts = { .amp = &int8, .skip = "int8_ends" };
    TD_TRY(td_compile(s->graph, s->dev, &opts, &s->integers));
    TD_TRY(td_program_init(s->wide, 3));
    TD_TRY(td_program_init(s->integers, 3));
    TD_TRY(td_onnx_qdq_init(s->graph, &ranges, s->wide, s->dev, &s->qdq));
    TD_TRY(td_onnx_new(&s->onnx));
    return td_onnx_of_graph(s->qdq.graph, NULL, NULL, s->qdq.program, &s->qdq.integers, &o,
                            s->onnx);
}

static void close_sample(sample *s)
{
    td_onnx_free(s->onnx);
    td_onnx_qdq_release(&s->qdq);
    td_program_free(s->wide);
    td_program_free(s->integers);
    td_graph_free(s->graph);
    td_device_close(s->dev);
}

static sample sample_new(void)
{
    sample s = { 0 };
    expect_ok(open_sample(&s));
    expect_ok(td_onnx_check(s.onnx, "sample"));
    return s;
}

static void run(td_program *p, float logits[LOGITS])
{
    static float images[BATCH * IMAGE];
    td_rng r = td_rng_make(5, TD_RNG_TEST, 0, 0);
    for (int i = 0; i < BATCH * IMAGE; i++)
        images[i] = (float)td_rng_normal(&r);
    expect_ok(td_program_bind(p, "images", images));
    expect_ok(td_program_run(p));
    memcpy(logits, td_program_output(p, "logits", NULL), LOGITS * sizeof *logits);
}

static double distance(const float *a, const float *b)
{
    double most = 0;
    for (int i = 0; i < LOGITS; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static td_tensor *tensor_of(const sample *s, const char *name)
{
    for (size_t i = 0; i < s->onnx->n_tensors; i++)
        if (strcmp(s->onnx->tensors[i].name, name) == 0)
            return &s->onnx->tensors[i];
    print_error("there is no tensor %s\n", name);
    fail();
    return NULL;
}

static td_onnx_node *node_of(const sample *s, const char *op, const char *in)
{
    for (size_t i = 0; i < s->onnx->n_nodes; i++)
        if (strcmp(s->onnx->nodes[i].op, op) == 0 &&
            (!in || strcmp(s->onnx->nodes[i].in[0], in) == 0))
            return &s->onnx->nodes[i];
    print_error("there is no %s\n", op);
    fail();
    return NULL;
}

/* --- what it computes ------------------------------------------------------------------------- */

/* Images are quantized once and the sums are not, so only the bias is rounded in another way. */
static void test_same_as_integers(void **state)
{
    (void)state;
    float wide[LOGITS], integers[LOGITS], qdq[LOGITS];
    sample s = sample_new();
    run(s.wide, wide);
    run(s.integers, integers);
    run(s.qdq.program, qdq);
    const double noise = distance(wide, integers);
    assert_true(noise > 0); /* it is quantized */
    assert_true(distance(integers, qdq) < noise / 20);
    close_sample(&s);
}

static void test_file(void **state)
{
    (void)state;
    float qdq[LOGITS], back[LOGITS];
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    sample s = sample_new();
    td_onnx_graph g;
    td_program *p;
    const td_tensor *w = tensor_of(&s, "conv2.weight"), *b = tensor_of(&s, "conv2.bias");
    assert_int_equal(w->dtype, TD_DT_S8);
    assert_int_equal(w->rank, 4);
    assert_int_equal(b->dtype, TD_DT_I32);
    assert_int_equal(tensor_of(&s, "conv2.weight_scale")->dim[0], 32);
    assert_int_equal(tensor_of(&s, "conv1.weight")->dtype, TD_DT_F32);
    assert_int_equal(node_of(&s, "QuantizeLinear", NULL)->n_in, 3);
    expect_ok(td_graph_of_onnx(s.onnx, "m", &(td_onnx_import_opts){ .batch = BATCH }, &g));
    expect_ok(td_compile(g.graph, s.dev,
                         &(td_compile_opts){ .amp = &float32, .skip = TD_ONNX_SKIP }, &p));
    expect_ok(td_onnx_set_weights(&g, p));
    run(s.qdq.program, qdq);
    run(p, back);
    assert_true(distance(qdq, back) < 1e-6);
    td_program_free(p);
    td_onnx_graph_release(&g);
    close_sample(&s);
}

/* a bias of more than 30 bits in steps of the integers' product makes the steps larger */
static void test_large_bias(void **state)
{
    (void)state;
    float gamma[32], beta[32], wide[LOGITS], qdq[LOGITS];
    sample s = sample_new();
    td_onnx_qdq_release(&s.qdq);
    for (int i = 0; i < 32; i++) {
        gamma[i] = i % 2 ? 1 : 1e-12F;
        beta[i] = (float)i;
    }
    expect_ok(td_program_set(s.wide, "bn2.weight", gamma));
    expect_ok(td_program_set(s.wide, "bn2.bias", beta));
    expect_ok(td_onnx_qdq_init(s.graph, &ranges, s.wide, s.dev, &s.qdq));
    run(s.wide, wide);
    run(s.qdq.program, qdq);
    assert_true(distance(wide, qdq) < 0.05);
    close_sample(&s);
}

/* --- what is refused -------------------------------------------------------------------------- */

static void expect_refused(sample *s, td_status st, const char *says)
{
    td_onnx_graph g;
    expect_error(td_graph_of_onnx(s->onnx, "m", &(td_onnx_import_opts){ .batch = BATCH }, &g), st,
                 says);
    assert_null(g.graph);
    close_sample(s);
}

static const float bad_scales[] = { 0, -1, NAN, INFINITY };

static void test_refused(void **state)
{
    (void)state;
    static int8_t ones[32];
    memset(ones, 1, sizeof ones);
    sample s = sample_new();
    tensor_of(&s, node_of(&s, "QuantizeLinear", NULL)->in[2])->data = ones;
    expect_refused(&s, TD_EUNSUPPORTED, "zero point");
    s = sample_new();
    tensor_of(&s, node_of(&s, "DequantizeLinear", "conv2.weight")->in[2])->data = ones;
    expect_refused(&s, TD_EUNSUPPORTED, "zero point");
    s = sample_new();
    node_of(&s, "DequantizeLinear", "conv2.weight")->attr[0].i = 1;
    expect_refused(&s, TD_EUNSUPPORTED, "scale for each row");
    s = sample_new();
    tensor_of(&s, "conv2.weight_scale")->dim[0] = 31;
    expect_refused(&s, TD_EUNSUPPORTED, "scale for each row");
    s = sample_new();
    node_of(&s, "QuantizeLinear", NULL)->n_in = 2;
    expect_refused(&s, TD_EUNSUPPORTED, "not u8 or s8");
    for (size_t i = 0; i < sizeof bad_scales / sizeof *bad_scales; i++) {
        s = sample_new();
        tensor_of(&s, node_of(&s, "QuantizeLinear", NULL)->in[1])->data = &bad_scales[i];
        expect_refused(&s, TD_EFORMAT, "positive");
    }
}

static void test_nothing_quantized(void **state)
{
    (void)state;
    const td_activation_range other = { .weight = "conv3.weight", .input = 1, .output = 1 };
    const td_activation_ranges none = { .n = 1, .ranges = &other };
    sample s = sample_new();
    td_onnx_qdq_release(&s.qdq);
    expect_error(td_onnx_qdq_init(s.graph, &none, s.wide, s.dev, &s.qdq), TD_EUNSUPPORTED,
                 "no convolution");
    close_sample(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_integers),  cmocka_unit_test(test_file),
        cmocka_unit_test(test_large_bias),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nothing_quantized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
