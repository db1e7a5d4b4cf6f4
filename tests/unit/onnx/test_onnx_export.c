/*
 * test_onnx_export.c -- graphs to ONNX and back; models that are not what they declare; the job
 */
#include "onnx/onnx_export.h"

#include <math.h>
#include <stdio.h>

#include "base/file_io.h"
#include "base/text.h"
#include "ops/ops.h"
#include "optim/training_graph.h"
#include "pass/amp.h"
#include "support/allocations.h"
#include "support/expect.h"
#include "support/graphs.h"
#include "support/scratch.h"
#include "tandem/convert.h"

#define OPS "tests/data/onnx_ops.td"

/* a network, compiled and filled, and its model */
typedef struct {
    td_model_opts model;
    td_device *dev;
    td_graph *graph, *other;
    td_program *program;
    td_onnx *onnx;
} sample;

static td_status open_sample(sample *s, const td_onnx_opts *o)
{
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    TD_TRY(td_model_resolve(&s->model));
    TD_TRY(td_device_open("cpu", &s->dev));
    TD_TRY(td_inference_graph(&s->model, 2, NULL, &s->graph));
    TD_TRY(td_inference_graph(&s->model, 3, NULL, &s->other));
    TD_TRY(td_compile(s->graph, s->dev, &(td_compile_opts){ .amp = &float32 }, &s->program));
    TD_TRY(td_program_init(s->program, 3));
    TD_TRY(td_onnx_new(&s->onnx));
    return td_onnx_of_graph(s->graph, o->batch_size ? NULL : s->other, NULL, s->program, NULL, o,
                            s->onnx);
}

static void close_sample(sample *s)
{
    td_onnx_free(s->onnx);
    td_program_free(s->program);
    td_graph_free(s->graph);
    td_graph_free(s->other);
    td_device_close(s->dev);
}

static sample sample_of(const char *file, const td_onnx_opts *o)
{
    sample s = { 0 };
    td_model_defaults(&s.model);
    s.model.model = file;
    expect_ok(open_sample(&s, o));
    expect_ok(td_onnx_check(s.onnx, "sample"));
    return s;
}

static td_onnx_node *node_of(const sample *s, const char *op)
{
    for (size_t i = 0; i < s->onnx->n_nodes; i++)
        if (strcmp(s->onnx->nodes[i].op, op) == 0)
            return &s->onnx->nodes[i];
    print_error("there is no %s\n", op);
    fail();
    return NULL;
}

/* nodes without parameters are numbered: "/max" stands for "relu6_3/max" */
static td_tensor *tensor_of(const sample *s, const char *name)
{
    for (size_t i = 0; i < s->onnx->n_tensors; i++)
        if (strcmp(s->onnx->tensors[i].name, name) == 0 ||
            (*name == '/' && td_text_ends(s->onnx->tensors[i].name, name)))
            return &s->onnx->tensors[i];
    print_error("there is no tensor %s\n", name);
    fail();
    return NULL;
}

static td_status read_graph(const td_onnx *m, int batch, td_onnx_graph *out)
{
    const td_onnx_import_opts o = { .batch = batch, .is_after = td_onnx_eval_knows };
    return td_graph_of_onnx(m, "m", &o, out);
}

static void expect_refused(const sample *s, td_status st, const char *says)
{
    td_onnx_graph g;
    expect_error(read_graph(s->onnx, 2, &g), st, says);
    assert_null(g.graph);
}

/* --- there and back --------------------------------------------------------------------------- */

static void test_every_op(void **state)
{
    (void)state;
    td_onnx_opts o = { 0 };
    sample s = sample_of(OPS, &o);
    td_onnx_graph g;
    assert_int_equal(s.onnx->inputs.n, 1);
    assert_string_equal(s.onnx->inputs.at[0].name, "images");
    assert_string_equal(s.onnx->inputs.at[0].dim[0].param, "N");
    assert_int_equal(s.onnx->inputs.at[0].dim[3].value, 24);
    assert_int_equal(s.onnx->outputs.n, 1);
    assert_string_equal(s.onnx->outputs.at[0].name, "logits");
    assert_string_equal(s.onnx->outputs.at[0].dim[0].param, "N");
    assert_int_equal(s.onnx->outputs.at[0].dim[1].value, 6);
    assert_int_equal(tensor_of(&s, "fc1.weight")->rank, 2);
    assert_int_equal(tensor_of(&s, "se.fc2.weight")->rank, 4); /* [C, D] in the network */
    for (int batch = 1; batch < 6; batch += 2) {
        expect_ok(read_graph(s.onnx, batch, &g));
        assert_int_equal(td_graph_output_value(g.graph, "logits")->type.dim[0], batch);
        td_onnx_graph_release(&g);
    }
    close_sample(&s);
}

static void test_forms(void **state)
{
    (void)state;
    td_onnx_opts o = { .batch_size = 2,
                       .input = TD_ONNX_IN_BYTES,
                       .se_layers = TD_ONNX_SE_LINEAR,
                       .probabilities = true,
                       .half_weights = true };
    sample s = sample_of(OPS, &o);
    td_onnx_graph g;
    assert_int_equal(s.onnx->inputs.at[0].dtype, TD_DT_U8);
    assert_int_equal(s.onnx->inputs.at[0].dim[0].value, 2);
    assert_int_equal(s.onnx->inputs.at[0].dim[3].value, 3);
    assert_string_equal(s.onnx->outputs.at[1].name, "probabilities");
    assert_int_equal(tensor_of(&s, "c1.weight")->dtype, TD_DT_F16);
    assert_int_equal(tensor_of(&s, "c2.bias")->dtype, TD_DT_F32);
    assert_int_equal(tensor_of(&s, "se.fc1.weight")->rank, 2);
    expect_ok(read_graph(s.onnx, 2, &g));
    assert_int_equal(g.n_prepared, 4); /* Cast, Transpose, Sub, Div */
    td_onnx_graph_release(&g);
    expect_error(read_graph(s.onnx, 3, &g), TD_EFORMAT, "2 images, wanted 3");
    close_sample(&s);
}

/* bytes in rows of pixels become normalised planes */
static void test_preparation(void **state)
{
    (void)state;
    enum { SIDE = 24, PLANE = SIDE * SIDE, N = 2 * 3 * PLANE };
    static uint8_t pixels[N];
    static float planes[N];
    const float mean[3] = { 123.675f, 116.28f, 103.53f }, std[3] = { 58.395f, 57.12f, 57.375f };
    td_onnx_opts o = { .input = TD_ONNX_IN_BYTES };
    sample s = sample_of(OPS, &o);
    td_onnx_graph g;
    for (int i = 0; i < N; i++)
        pixels[i] = (uint8_t)(i * 7 % 251);
    expect_ok(read_graph(s.onnx, 2, &g));
    expect_ok(td_onnx_prepare(&g, pixels, planes));
    for (int n = 0; n < 2; n++)
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < PLANE; i++) {
                float x = ((float)pixels[(n * PLANE + i) * 3 + c] - mean[c]) / std[c];
                assert_true(planes[(n * 3 + c) * PLANE + i] == x);
            }
    td_onnx_graph_release(&g);
    close_sample(&s);
}

/* --- what it computes ------------------------------------------------------------------------- */

/* largest difference of the logits over the largest of them */
static double difference(const sample *s, const float *images)
{
    td_onnx_graph g;
    td_program *back;
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    double most = 0, largest = 0;
    expect_ok(read_graph(s->onnx, 2, &g));
    expect_ok(td_compile(g.graph, s->dev, &(td_compile_opts){ .amp = &float32 }, &back));
    expect_ok(td_onnx_set_weights(&g, back));
    expect_ok(td_program_bind(back, "images", images));
    expect_ok(td_program_bind(s->program, "images", images));
    expect_ok(td_program_run(back));
    expect_ok(td_program_run(s->program));
    const float *a = td_program_output(s->program, "logits", NULL);
    const float *b = td_program_output(back, "logits", NULL);
    for (int i = 0; i < 2 * 6; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)a[i]));
    }
    td_program_free(back);
    td_onnx_graph_release(&g);
    return most / largest;
}

/* and a change of any number changes the logits: the network has no dead ends */
static void test_same_logits(void **state)
{
    (void)state;
    enum { N = 2 * 3 * 24 * 24 };
    static float images[N];
    td_onnx_opts o = { 0 };
    sample s = sample_of(OPS, &o);
    for (int i = 0; i < N; i++)
        images[i] = (float)(i * 37 % 101) / 50 - 1;
    double d = difference(&s, images);
    assert_true(d < 1e-5);

    td_onnx_node *n = node_of(&s, "BatchNormalization");
    n->attr[0].f = 0.01f;
    assert_true(difference(&s, images) > 1e-4);
    n->attr[0].f = 1e-5f;
    for (size_t i = 0; i < s.onnx->n_tensors; i++) {
        td_tensor *t = &s.onnx->tensors[i];
        float *x = (float *)(uintptr_t)t->data, was[400 * 6];
        if (t->dtype != TD_DT_F32 || strchr(t->name, '/') || t->n_bytes > sizeof was)
            continue;
        memcpy(was, x, t->n_bytes);
        for (size_t k = 0; k < t->n_bytes / sizeof *x; k++)
            x[k] = x[k] * 1.5f + 0.1f;
        if (difference(&s, images) < 1e-4) {
            print_error("%s does not matter\n", t->name);
            fail();
        }
        memcpy(x, was, t->n_bytes);
    }
    close_sample(&s);
}

/* --- pooling that has no op ------------------------------------------------------------------- */

/* a model with one pooling of images [1, 3, 5, 5]; its results for ones, the first [side, side] */
static void pool_ones(const char *op, int64_t kernel, int64_t stride, int64_t begin, int64_t end,
                      int ceil_mode, int include, int side, float *out)
{
    static float ones[75];
    td_onnx *m;
    td_onnx_graph g;
    td_program *p;
    td_device *dev;
    td_type t;
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    const td_onnx_value images = { .name = "x",
                                   .dtype = TD_DT_F32,
                                   .rank = 4,
                                   .dim = { { 1, NULL }, { 3, NULL }, { 5, NULL }, { 5, NULL } } };
    const td_onnx_value y = { .name = "y",
                              .dtype = TD_DT_F32,
                              .rank = 2,
                              .dim = { { 1, NULL }, { 3 * side * side, NULL } } };
    for (int i = 0; i < 75; i++)
        ones[i] = 1;
    expect_ok(td_onnx_new(&m));
    m->opset = 19;
    td_onnx_add_value(m, &m->inputs, &images);
    td_onnx_add_value(m, &m->outputs, &y);
    td_onnx_add_node(m, op, "p", 1, (const char *[]){ "x" }, "pooled");
    td_onnx_attr_ints(m, "kernel_shape", 2, (int64_t[]){ kernel, kernel });
    td_onnx_attr_ints(m, "strides", 2, (int64_t[]){ stride, stride });
    td_onnx_attr_ints(m, "pads", 4, (int64_t[]){ begin, begin, end, end });
    td_onnx_attr_int(m, "ceil_mode", ceil_mode);
    if (strcmp(op, "AveragePool") == 0)
        td_onnx_attr_int(m, "count_include_pad", include);
    td_onnx_add_node(m, "Flatten", "f", 1, (const char *[]){ "pooled" }, "y");
    expect_ok(m->st);
    expect_ok(td_graph_of_onnx(m, "m", &(td_onnx_import_opts){ .batch = 1, .is_model = true }, &g));
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_compile(g.graph, dev, &(td_compile_opts){ .amp = &float32 }, &p));
    expect_ok(td_program_bind(p, "images", ones));
    expect_ok(td_program_run(p));
    const float *found = td_program_output(p, "logits", &t);
    assert_int_equal(t.dim[1], 3 * side * side);
    memcpy(out, found, (size_t)(side * side) * sizeof *out);
    td_program_free(p);
    td_device_close(dev);
    td_onnx_graph_release(&g);
    td_onnx_free(m);
}

static void expect_near(float found, double wanted)
{
    assert_true(fabs((double)found - wanted) < 1e-6);
}

static void test_awkward_pools(void **state)
{
    (void)state;
    float y[49];
    pool_ones("AveragePool", 2, 2, 0, 0, 1, 0, 3, y); /* the last window is half outside */
    for (int i = 0; i < 9; i++)
        expect_near(y[i], 1);
    pool_ones("AveragePool", 2, 2, 0, 0, 1, 1, 3, y); /* nor is what rounding up adds counted */
    for (int i = 0; i < 9; i++)
        expect_near(y[i], 1);
    pool_ones("AveragePool", 2, 1, 0, 1, 0, 0, 5, y); /* uneven */
    for (int i = 0; i < 25; i++)
        expect_near(y[i], 1);
    pool_ones("AveragePool", 3, 1, 2, 2, 0, 0, 7, y); /* wide: corners have one pixel */
    for (int i = 0; i < 49; i++)
        expect_near(y[i], 1);
    pool_ones("AveragePool", 3, 1, 2, 2, 0, 1, 7, y);
    expect_near(y[0], 1.0 / 9);
    expect_near(y[1], 2.0 / 9);
    expect_near(y[8], 4.0 / 9);
    expect_near(y[24], 1);
    pool_ones("MaxPool", 3, 1, 2, 2, 0, 0, 7, y);
    for (int i = 0; i < 49; i++)
        expect_near(y[i], 1);
}

/* --- images of any size ----------------------------------------------------------------------- */

/* convolution, a linear layer of pixels, mean, plus a row that is repeated for each image */
static td_graph *pixels_graph(int64_t n, int64_t h, int64_t w)
{
    td_graph *g;
    const td_conv_attr conv = { .stride = 2, .pad = 1, .dilation = 1, .groups = 1 };
    char repeated[40];
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "images", td_type_4d(TD_DT_F32, n, 3, h, w));
    td_value *filter =
        td_param(b, "c.weight", TD_DT_F32, 4, (int64_t[]){ 4, 3, 3, 3 }, "init=normal, scale=0.3");
    td_value *rows =
        td_param(b, "l.weight", TD_DT_F32, 2, (int64_t[]){ 5, 4 }, "init=normal, scale=0.5");
    td_value *more =
        td_param(b, "more", TD_DT_F32, 2, (int64_t[]){ 1, 5 }, "init=normal, scale=0.5");
    x = td_emit(b, &td_op_conv2d, &conv, x, filter);
    const int64_t p = td_value_type(x).dim[2], q = td_value_type(x).dim[3];
    x = td_transpose(b, x, (const int[]){ 0, 2, 3, 1 });
    x = td_linear(b, td_reshape(b, x, 2, (int64_t[]){ n * p * q, 4 }), rows, NULL);
    x = td_transpose(b, td_reshape(b, x, 4, (int64_t[]){ n, p, q, 5 }),
                     (const int[]){ 0, 3, 1, 2 });
    snprintf(repeated, sizeof repeated, "shape=%d:5", (int)n);
    more = td_emit(b, &td_op_broadcast_to, td_build_attr(b, &td_op_broadcast_to, repeated), more);
    td_output(b, "logits", td_add(b, td_global_avg_pool(b, x), more));
    expect_ok(td_build_end(b, &g));
    return g;
}

/* logits of a graph whose parameters are those of `from` */
static void run_graph(const td_graph *g, td_device *dev, td_program *from,
                      const td_onnx_graph *read, const float *images, float *logits, int n)
{
    td_program *p;
    float data[108];
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .amp = &float32 }, &p));
    for (int i = 0; i < g->n_values && from; i++)
        if (td_value_is_param(g->values[i])) {
            expect_ok(td_program_get(from, g->values[i]->name, data));
            expect_ok(td_program_set(p, g->values[i]->name, data));
        }
    if (read)
        expect_ok(td_onnx_set_weights(read, p));
    expect_ok(td_program_bind(p, "images", images));
    expect_ok(td_program_run(p));
    memcpy(logits, td_program_output(p, "logits", NULL), (size_t)n * sizeof *logits);
    td_program_free(p);
}

static void test_any_size(void **state)
{
    (void)state;
    static const int sizes[][3] = { { 2, 16, 16 }, { 1, 21, 33 }, { 3, 40, 17 } };
    static float images[3 * 3 * 40 * 33];
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    const td_onnx_opts o = { 0 };
    char why[TD_ONNX_WHY];
    td_device *dev;
    td_program *p;
    td_onnx *m;
    td_graph *g = pixels_graph(2, 16, 16), *other = pixels_graph(3, 16, 16);
    td_graph *larger = pixels_graph(2, 21, 35);
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        images[i] = (float)(i * 37 % 101) / 50 - 1;
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .amp = &float32 }, &p));
    expect_ok(td_program_init(p, 3));
    expect_ok(td_onnx_new(&m));
    m->opset = 13;
    assert_true(td_onnx_any_size(g, larger, why));
    expect_ok(td_onnx_of_graph(g, other, larger, p, NULL, &o, m));
    expect_ok(td_onnx_check(m, "m"));
    assert_string_equal(m->inputs.at[0].dim[2].param, "height");
    assert_string_equal(m->inputs.at[0].dim[3].param, "width");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int n = sizes[i][0];
        td_onnx_graph back;
        float wanted[15], found[15];
        const td_onnx_import_opts at = { .batch = n, .height = sizes[i][1], .width = sizes[i][2] };
        expect_ok(td_graph_of_onnx(m, "m", &at, &back));
        td_graph *own = pixels_graph(n, sizes[i][1], sizes[i][2]);
        run_graph(own, dev, p, NULL, images, wanted, 5 * n);
        run_graph(back.graph, dev, NULL, &back, images, found, 5 * n);
        for (int k = 0; k < 5 * n; k++)
            assert_true(fabsf(wanted[k] - found[k]) < 1e-5f);
        td_graph_free(own);
        td_onnx_graph_release(&back);
    }
    td_onnx_graph none;
    expect_error(td_graph_of_onnx(m, "m", &(td_onnx_import_opts){ .batch = 2 }, &none),
                 TD_EUNSUPPORTED, "the size of its images is not fixed");
    td_onnx_free(m);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    td_graph_free(other);
    td_graph_free(larger);
}

static void test_one_size(void **state)
{
    (void)state;
    char why[TD_ONNX_WHY];
    static const char text[] = "%%images:f32[1,3,%d,8] = input\n"
                               "%%w:f32[2,%d] = param\n"
                               "%%1 = reshape %%images {shape=1:%d}\n"
                               "%%y = linear %%1, %%w\n"
                               "output logits = %%y\n";
    char a[300], b[300];
    td_graph *g, *larger;
    snprintf(a, sizeof a, text, 8, 192, 192);
    snprintf(b, sizeof b, text, 9, 216, 216);
    expect_ok(td_graph_parse(a, "a", &g));
    expect_ok(td_graph_parse(b, "b", &larger));
    assert_false(td_onnx_any_size(g, larger, why));
    assert_non_null(strstr(why, "'w'"));
    td_graph_free(g);
    td_graph_free(larger);
}

/* --- what is refused -------------------------------------------------------------------------- */

static void refused_graph(const char *text, const char *says)
{
    const char *path = td_scratch_path("refused.td");
    td_onnx_opts o = { 0 };
    sample s = { 0 };
    expect_ok(td_file_write(path, text, strlen(text)));
    td_model_defaults(&s.model);
    s.model.model = path;
    expect_error(open_sample(&s, &o), TD_EUNSUPPORTED, says);
    close_sample(&s);
}

static void test_no_counterpart(void **state)
{
    (void)state;
    refused_graph("%images:f32[1,3,8,8] = input\n"
                  "%w:f32[2,3] = param\n"
                  "%1 = global_avg_pool %images\n"
                  "%2 = linear %1, %w\n"
                  "%y = broadcast_like %2, %2\n"
                  "output logits = %y\n",
                  "the op broadcast_like ('%");
    refused_graph("%images:f32[1,3,8,8] = input\n"
                  "%1, %where = max_pool2d %images\n"
                  "%2 = cast %where {to=f32}\n"
                  "%y = global_avg_pool %2\n"
                  "output logits = %y\n",
                  "the second result of max_pool2d is used");
}

/* declared shapes are compared with what comes out */
static void test_other_shapes(void **state)
{
    (void)state;
    td_onnx_opts o = { 0 };
    sample s = sample_of(OPS, &o);
    for (size_t i = 0; i < s.onnx->values.n; i++) {
        td_onnx_value *v = &s.onnx->values.at[i], was = *v;
        if (!v->rank)
            continue;
        v->dim[v->rank - 1] = (td_onnx_dim){ 77, NULL };
        expect_refused(&s, TD_EFORMAT, "have its declared type and");
        *v = was;
        v->dtype = TD_DT_I32;
        expect_refused(&s, TD_EFORMAT, "have its declared type and");
        *v = was;
    }
    s.onnx->outputs.at[0].dim[1].value = 7;
    expect_refused(&s, TD_EFORMAT, "'logits'");
    s.onnx->outputs.at[0].dim[1].value = 6;
    s.onnx->values.n--;
    expect_refused(&s, TD_EFORMAT, "no type is declared for");
    close_sample(&s);
}

static void test_other_nodes(void **state)
{
    (void)state;
    td_onnx_opts o = { 0 };
    sample s = sample_of(OPS, &o);
    td_onnx_node *n = node_of(&s, "Conv"), was = *n;
    n->op = "DeformConv";
    expect_refused(&s, TD_EUNSUPPORTED, "DeformConv): an");
    *n = was;
    n->attr[0].name = "pad_mode";
    expect_refused(&s, TD_EUNSUPPORTED, "Conv): an unsupported attribute");
    n->attr[0].name = "kernel_shape";
    n->attr[0].ints[0]++;
    expect_refused(&s, TD_EFORMAT, "'c1/Conv' (Conv): kernel_shape differs from");
    n->attr[0].ints[0]--;
    n->attr[1].ints[1] = 0;
    expect_refused(&s, TD_EFORMAT, "a window, stride or dilation is out of range");
    n->attr[1].ints[1] = n->attr[1].ints[0];
    int64_t *pads = n->attr[2].ints; /* 1, 1, 3, 3 */
    assert_string_equal(n->attr[2].name, "pads");
    assert_true(pads[0] == 1 && pads[1] == 1 && pads[2] == 3 && pads[3] == 3);
    pads[2] = (int64_t)1 << 40;
    expect_refused(&s, TD_EFORMAT, "'c1/Conv' (Conv): padding is out of range");
    pads[2] = -1;
    expect_refused(&s, TD_EFORMAT, "'c1/Conv' (Conv): padding is out of range");
    pads[2] = pads[3] = 3;
    n->n_in = 1;
    expect_refused(&s, TD_EFORMAT, "number of operands");
    n->n_in = 2;

    n = node_of(&s, "AveragePool");
    assert_string_equal(n->attr[2].name, "pads");
    n->attr[2].ints[2]++, n->attr[2].ints[3]++;
    expect_refused(&s, TD_EUNSUPPORTED, "uneven padding");
    n->attr[2].ints[2]--, n->attr[2].ints[3]--;

    n = node_of(&s, "Gemm");
    n->attr[0].i = 0;
    expect_refused(&s, TD_ESHAPE, "matmul: a has 400 columns, b 6 rows");
    n->attr[0].i = 1;

    int64_t *rows = (int64_t *)(uintptr_t)tensor_of(&s, "/rows")->data;
    const int64_t row = rows[3];
    rows[3] = 100;
    expect_refused(&s, TD_EFORMAT, "an index is out of range");
    rows[3] = row;
    float *max = (float *)(uintptr_t)tensor_of(&s, "/max")->data;
    *max = NAN;
    expect_refused(&s, TD_EFORMAT, "a limit is not a number");
    *max = 6;

    td_onnx_graph g;
    expect_ok(read_graph(s.onnx, 2, &g)); /* all is as it was */
    td_onnx_graph_release(&g);
    close_sample(&s);
}

/* --- memory ----------------------------------------------------------------------------------- */

static sample held;

static td_status there_and_back(void)
{
    const td_onnx_opts o = { .input = TD_ONNX_IN_BYTES, .half_weights = true };
    td_onnx *m = NULL;
    td_onnx_graph g = { 0 };
    td_status st = td_onnx_new(&m);
    if (st == TD_OK)
        st = td_onnx_of_graph(held.graph, held.other, NULL, held.program, NULL, &o, m);
    if (st == TD_OK)
        st = read_graph(m, 2, &g);
    td_onnx_graph_release(&g);
    td_onnx_free(m);
    return st;
}

static void test_memory(void **state)
{
    (void)state;
    td_onnx_opts o = { 0 };
    held = sample_of(OPS, &o);
    td_test_allocations(there_and_back, 5000);
    close_sample(&held);
}

/* --- the job ---------------------------------------------------------------------------------- */

static void test_job(void **state)
{
    (void)state;
    td_onnx_opts o;
    td_onnx_result r;
    char in[300], out[300];
    td_onnx *m;
    td_onnx_defaults(&o);
    o.model.model = OPS;
    o.opset = 21;
    o.probabilities = true;
    snprintf(in, sizeof in, "%s", td_scratch_path("w.safetensors"));
    snprintf(out, sizeof out, "%s", td_scratch_path("w.onnx"));
    expect_ok(td_init_weights(&o.model, 1, in, true));
    expect_ok(td_onnx_export(in, out, &o, &r));
    assert_true(r.was_verified);
    assert_true(r.difference >= 0 && r.difference < 1e-5);
    assert_string_equal(r.output, out);
    expect_ok(td_onnx_read(out, &m));
    assert_int_equal(m->opset, 21);
    assert_int_equal(m->n_nodes, r.n_nodes);
    assert_string_equal(m->producer, "tandem");
    assert_string_equal(m->producer_version, td_version());
    assert_string_equal(td_onnx_meta_find(m, "tandem.image_size"), "24");
    assert_string_equal(td_onnx_meta_find(m, "tandem.input"), "normalised");
    td_onnx_free(m);

    /* another network than the weights': nothing is written */
    o.model.model = NULL;
    o.model.arch = "resnet18";
    expect_error(td_onnx_export(in, td_scratch_path("other.onnx"), &o, &r), TD_EFORMAT, "w.safe");
    assert_int_equal(td_scratch_count("other.onnx"), 0);
}

/* weights that diverged have no logits to compare: nothing is written, what was there stays */
static void test_job_without_numbers(void **state)
{
    (void)state;
    td_onnx_opts o;
    td_onnx_result r;
    td_tensors *t;
    char in[300], bad[300], *kept;
    size_t n;
    td_onnx_defaults(&o);
    o.model.model = OPS;
    snprintf(in, sizeof in, "%s", td_scratch_path("n.safetensors"));
    snprintf(bad, sizeof bad, "%s", td_scratch_path("nan.safetensors"));
    expect_ok(td_init_weights(&o.model, 1, in, true));
    expect_ok(td_tensors_read(in, &t));
    float *weights = (float *)(uintptr_t)td_tensors_get(t, "fc2.weight")->data;
    for (int i = 0; i < 36; i++)
        weights[i] = i % 2 ? 3e38F : -3e38F; /* finite, unlike their sums */
    td_tensors *copy;
    expect_ok(td_tensors_new(&copy));
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        const td_tensor *x = td_tensors_at(t, i);
        expect_ok(td_tensors_add(copy, x->name, x->dtype, x->rank, x->dim, x->data));
    }
    expect_ok(td_tensors_write(copy, bad));
    td_tensors_free(copy);
    td_tensors_free(t);

    const char *out = td_scratch_path("nan.onnx");
    expect_ok(td_file_write(out, "old", 3));
    expect_error(td_onnx_export(bad, out, &o, &r), TD_EARG, "nan.onnx' exists");
    o.overwrite = true;
    expect_error(td_onnx_export(bad, out, &o, &r), TD_ENUMERIC, "nan.onnx' was not written");
    expect_ok(td_file_read(out, 100, &kept, &n));
    assert_int_equal(n, 3);
    td_free(kept);
    assert_int_equal(td_scratch_count("nan.onnx"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op),      cmocka_unit_test(test_forms),
        cmocka_unit_test(test_preparation),   cmocka_unit_test(test_no_counterpart),
        cmocka_unit_test(test_other_shapes),  cmocka_unit_test(test_other_nodes),
        cmocka_unit_test(test_memory),        cmocka_unit_test(test_job),
        cmocka_unit_test(test_same_logits),   cmocka_unit_test(test_job_without_numbers),
        cmocka_unit_test(test_any_size),      cmocka_unit_test(test_one_size),
        cmocka_unit_test(test_awkward_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
