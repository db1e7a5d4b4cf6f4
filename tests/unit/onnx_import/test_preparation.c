/*
 * test_preparation.c -- the nodes with which ONNX models normalize their images, and nodes that
 * only look like them
 */
#include "onnx_import/preparation.h"

#include <math.h>
#include <stdio.h>

#include "support/expect.h"

/* a model with the input x, whose nodes follow one another */
typedef struct {
    td_onnx *m;
    const char *last;
    int n;
    char name[32][8];
} fixture;

static void begin(fixture *f, td_dtype dtype, bool is_last)
{
    *f = (fixture){ .last = "x" };
    expect_ok(td_onnx_new(&f->m));
    td_onnx_value x = { .name = "x",
                        .dtype = dtype,
                        .rank = 4,
                        .dim = {
                            { .value = -1 }, { .value = 8 }, { .value = 8 }, { .value = 8 } } };
    x.dim[is_last ? 3 : 1].value = 3;
    td_onnx_add_value(f->m, &f->m->inputs, &x);
}

static void end(fixture *f)
{
    td_onnx_free(f->m);
}

static const char *fresh(fixture *f)
{
    assert_true(f->n < 32);
    snprintf(f->name[f->n], sizeof f->name[0], "v%d", f->n);
    return f->name[f->n++];
}

static void node(fixture *f, const char *op, const char *operand)
{
    const char *y = fresh(f);
    td_onnx_add_node(f->m, op, y, operand ? 2 : 1, (const char *[]){ f->last, operand }, y);
    f->last = y;
}

static void cast(fixture *f, td_dtype to)
{
    node(f, "Cast", NULL);
    td_onnx_attr_int(f->m, "to", td_onnx_dtype_number(to));
}

static void to_planes(fixture *f)
{
    node(f, "Transpose", NULL);
    td_onnx_attr_ints(f->m, "perm", 4, (const int64_t[]){ 0, 3, 1, 2 });
}

/* one number, or three along dimension `at` of `rank` */
static void arithmetic(fixture *f, const char *op, int rank, int at, const float *values, int n)
{
    int64_t dim[4] = { 1, 1, 1, 1 };
    const char *name = fresh(f);
    if (rank)
        dim[at] = n;
    td_onnx_add_tensor(f->m, name, TD_DT_F32, rank, dim, values);
    f->m->tensors[f->m->n_tensors - 1].n_bytes = (size_t)n * sizeof *values;
    node(f, op, name);
}

static const float bytes = 255, mean[3] = { 0.485f, 0.456f, 0.406f },
                   std[3] = { 0.229f, 0.224f, 0.225f };

static void expect_norm(fixture *f, int n_nodes, const float m[3], const float s[3])
{
    td_onnx_preparation p;
    expect_ok(f->m->st);
    td_onnx_find_preparation(f->m, &p);
    assert_true(p.has_norm);
    assert_int_equal(p.n_nodes, n_nodes);
    for (int c = 0; c < 3; c++) {
        assert_true(fabsf(p.norm.mean[c] - 255 * m[c]) <= 1e-4f);
        assert_true(fabsf(p.norm.std[c] - 255 * s[c]) <= 1e-4f);
    }
    for (size_t i = 0; i < f->m->n_nodes; i++)
        assert_int_equal(td_onnx_is_prepared(&p, &f->m->nodes[i]), (int)i < n_nodes);
}

static void expect_none(fixture *f, int n_nodes)
{
    td_onnx_preparation p;
    expect_ok(f->m->st);
    td_onnx_find_preparation(f->m, &p);
    assert_false(p.has_norm);
    assert_int_equal(p.n_nodes, n_nodes);
}

static void bytes_with_channels_last(void **state)
{
    (void)state;
    fixture f;
    td_onnx_preparation p;
    begin(&f, TD_DT_U8, true);
    cast(&f, TD_DT_F32);
    to_planes(&f);
    arithmetic(&f, "Div", 0, 0, &bytes, 1);
    arithmetic(&f, "Sub", 4, 1, mean, 3);
    arithmetic(&f, "Div", 3, 0, std, 3);
    node(&f, "Relu", NULL);
    expect_norm(&f, 5, mean, std);
    td_onnx_find_preparation(f.m, &p);
    assert_string_equal(p.text, "u8 [N,H,W,3]: Cast, Transpose, Div, Sub, Div");
    assert_true(p.is_last);
    assert_true(p.norm.mean[0] == (float)(255 * 0.485)); /* as --mean 0.485 */
    end(&f);

    begin(&f, TD_DT_U8, true); /* arithmetic before the transposition */
    cast(&f, TD_DT_F32);
    arithmetic(&f, "Div", 0, 0, &bytes, 1);
    arithmetic(&f, "Sub", 1, 0, mean, 3);
    arithmetic(&f, "Div", 4, 3, std, 3);
    to_planes(&f);
    expect_norm(&f, 5, mean, std);
    end(&f);
}

static void floats(void **state)
{
    (void)state;
    const float by[3] = { 1 / 0.229f, 1 / 0.224f, 1 / 0.225f },
                less[3] = { -0.485f / 0.229f, -0.456f / 0.224f, -0.406f / 0.225f };
    const float half[3] = { 0.5f, 0.5f, 0.5f }, of_half = 127.5f, one = 1;
    fixture f;
    begin(&f, TD_DT_F32, false); /* from 0 to 1 */
    arithmetic(&f, "Sub", 4, 1, mean, 3);
    arithmetic(&f, "Div", 4, 1, std, 3);
    expect_norm(&f, 2, mean, std);
    end(&f);
    begin(&f, TD_DT_F32, false);
    arithmetic(&f, "Mul", 4, 1, by, 3);
    arithmetic(&f, "Add", 4, 1, less, 3);
    expect_norm(&f, 2, mean, std);
    end(&f);
    begin(&f, TD_DT_F32, false); /* from 0 to 255: x / 127.5 - 1 */
    arithmetic(&f, "Div", 0, 0, &of_half, 1);
    arithmetic(&f, "Sub", 0, 0, &one, 1);
    expect_norm(&f, 2, half, half);
    end(&f);
}

/* the batch is read from images whose order is the graph's */
static void shapes_are_read(void **state)
{
    (void)state;
    fixture f;
    begin(&f, TD_DT_F32, false);
    arithmetic(&f, "Sub", 4, 1, mean, 3);
    arithmetic(&f, "Div", 4, 1, std, 3);
    f.last = "x";
    node(&f, "Shape", NULL);
    expect_norm(&f, 2, mean, std);
    end(&f);
    begin(&f, TD_DT_U8, true);
    cast(&f, TD_DT_F32);
    to_planes(&f);
    arithmetic(&f, "Div", 0, 0, &bytes, 1);
    f.last = "x";
    node(&f, "Shape", NULL);
    expect_none(&f, 0);
    end(&f);
}

static void a_resize_stays(void **state)
{
    (void)state;
    fixture f;
    td_onnx_preparation p;
    begin(&f, TD_DT_U8, false);
    cast(&f, TD_DT_F16);
    node(&f, "Resize", NULL);
    arithmetic(&f, "Div", 0, 0, &bytes, 1);
    td_onnx_find_preparation(f.m, &p);
    assert_true(p.has_norm);
    assert_int_equal(p.n_nodes, 2);
    assert_false(td_onnx_is_prepared(&p, &f.m->nodes[1]));
    assert_true(p.norm.mean[0] == 0 && p.norm.std[0] == 255);
    end(&f);
}

static void parts_of_networks(void **state)
{
    (void)state;
    const float two = 2, zero = 0, minus = -1, wide[3] = { 9, 9, 9 };
    fixture f;
    begin(&f, TD_DT_F32, false); /* 2 x: images may be normalized already */
    arithmetic(&f, "Mul", 0, 0, &two, 1);
    expect_none(&f, 0);
    end(&f);
    begin(&f, TD_DT_F32, true); /* the order of dimensions alone */
    to_planes(&f);
    node(&f, "Relu", NULL);
    expect_none(&f, 1);
    end(&f);
    begin(&f, TD_DT_U8, true); /* bytes that stay bytes */
    to_planes(&f);
    expect_none(&f, 0);
    end(&f);
    begin(&f, TD_DT_U8, true); /* channels that stay last */
    cast(&f, TD_DT_F32);
    arithmetic(&f, "Div", 0, 0, &bytes, 1);
    expect_none(&f, 0);
    end(&f);
    begin(&f, TD_DT_U8, false); /* division by 0 ends them, and a factor below 0 is no deviation */
    cast(&f, TD_DT_F32);
    arithmetic(&f, "Div", 0, 0, &zero, 1);
    expect_norm(&f, 1, (const float[3]){ 0, 0, 0 },
                (const float[3]){ 1 / 255.0f, 1 / 255.0f, 1 / 255.0f });
    end(&f);
    begin(&f, TD_DT_U8, false);
    cast(&f, TD_DT_F32);
    arithmetic(&f, "Mul", 0, 0, &minus, 1);
    expect_none(&f, 0);
    end(&f);
    begin(&f, TD_DT_F32, false); /* three numbers along the width */
    arithmetic(&f, "Div", 4, 3, wide, 3);
    expect_none(&f, 0);
    end(&f);
    begin(&f, TD_DT_F32, false); /* a second reader of the images */
    arithmetic(&f, "Sub", 4, 1, mean, 3);
    f.last = "x";
    node(&f, "Relu", NULL);
    expect_none(&f, 0);
    end(&f);
}

/* however long a chain is, it ends */
static void many_nodes(void **state)
{
    (void)state;
    fixture f;
    td_onnx_preparation p;
    begin(&f, TD_DT_F32, false);
    for (int i = 0; i < 30; i++)
        node(&f, "Identity", NULL);
    td_onnx_find_preparation(f.m, &p);
    assert_false(p.has_norm);
    assert_true(p.n_nodes <= TD_ONNX_PREPARATION_MAX);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_with_channels_last),
        cmocka_unit_test(floats),
        cmocka_unit_test(a_resize_stays),
        cmocka_unit_test(parts_of_networks),
        cmocka_unit_test(many_nodes),
        cmocka_unit_test(shapes_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
