/*
 * test_known_moves.c -- tensors that are computed when an ONNX model is read: the mask of shifted
 * windows as exporters write it, every operator that moves elements, and hostile operands
 */
#include "onnx_import/shape_values.h"

#include <stdio.h>
#include <string.h>

#include "support/expect.h"

typedef struct {
    td_onnx *m;
    td_map tensors;
    td_onnx_folder folder;
} fixture;

static void begin(fixture *f)
{
    *f = (fixture){ 0 };
    f->folder.tensors = &f->tensors;
    expect_ok(td_onnx_new(&f->m));
}

static void end(fixture *f)
{
    td_map_release(&f->tensors);
    td_onnx_folder_release(&f->folder);
    td_onnx_free(f->m);
}

/* an initializer */
static void known(fixture *f, const char *name, td_dtype dtype, int rank, const int64_t *dim,
                  const void *at)
{
    size_t n = td_dtype_bytes(dtype);
    for (int d = 0; d < rank; d++)
        n *= (size_t)dim[d];
    char *copy = td_arena_alloc(&f->folder.arena, n + 1, 1);
    assert_non_null(copy);
    if (n)
        memcpy(copy, at, n);
    td_onnx_add_tensor(f->m, name, dtype, rank, dim, copy);
    expect_ok(f->m->st);
    td_tensor *t = td_arena_alloc(&f->folder.arena, 1, sizeof *t);
    assert_non_null(t);
    *t = f->m->tensors[f->m->n_tensors - 1];
    expect_ok(td_map_set(&f->tensors, name, t));
}

static void list(fixture *f, const char *name, int64_t n, const int64_t *at)
{
    known(f, name, TD_DT_I64, 1, &n, at);
}

static void number(fixture *f, const char *name, int64_t x)
{
    known(f, name, TD_DT_I64, 0, NULL, &x);
}

/* y = op(operands, which blanks separate) */
static td_onnx_node *node(fixture *f, const char *op, const char *operands, const char *y)
{
    char text[160];
    const char *in[8];
    int n = 0;
    snprintf(text, sizeof text, "%s", operands);
    for (char *save, *w = strtok_r(text, " ", &save); w && n < 8; w = strtok_r(NULL, " ", &save))
        in[n++] = td_onnx_text(f->m, w);
    td_onnx_add_node(f->m, op, y, n, in, y);
    expect_ok(f->m->st);
    return &f->m->nodes[f->m->n_nodes - 1];
}

static const td_tensor *computed(fixture *f, const td_onnx_node *n, td_dtype dtype, int rank,
                                 const int64_t *dim)
{
    bool done;
    int64_t count = 1;
    expect_ok(td_onnx_fold(&f->folder, n, NULL, &done));
    assert_true(done);
    assert_true(td_onnx_is_computed(&f->folder, n->out[0]));
    const td_tensor *t = td_map_get(&f->tensors, n->out[0]);
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(t->rank, rank);
    for (int d = 0; d < rank; d++) {
        assert_int_equal(t->dim[d], dim[d]);
        count *= dim[d];
    }
    assert_int_equal(t->n_bytes, (size_t)count * td_dtype_bytes(dtype));
    return t;
}

#define D(...) ((const int64_t[]){ __VA_ARGS__ })

static void expect_ints(fixture *f, const td_onnx_node *n, int rank, const int64_t *dim,
                        const int64_t *wanted)
{
    const td_tensor *t = computed(f, n, TD_DT_I64, rank, dim);
    assert_memory_equal(t->data, wanted, t->n_bytes);
}

static void expect_floats(fixture *f, const td_onnx_node *n, int rank, const int64_t *dim,
                          const float *wanted)
{
    const td_tensor *t = computed(f, n, TD_DT_F32, rank, dim);
    assert_memory_equal(t->data, wanted, t->n_bytes);
}

static void expect_left(fixture *f, const td_onnx_node *n)
{
    bool done;
    expect_ok(td_onnx_fold(&f->folder, n, NULL, &done));
    assert_false(done);
}

static void expect_bad(fixture *f, const td_onnx_node *n, const char *says)
{
    bool done;
    expect_error(td_onnx_fold(&f->folder, n, NULL, &done), TD_EFORMAT, says);
}

/* a row of four pixels, windows of two, shifted by one: regions 0, 1, 2, and who may not meet */
static void the_mask_of_shifted_windows(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    list(&f, "four", 1, D(4));
    list(&f, "two_two", 2, D(2, 2));
    list(&f, "axis1", 1, D(1));
    list(&f, "axis2", 1, D(2));
    known(&f, "at1", TD_DT_I64, 2, D(1, 1), D(-2));
    known(&f, "at2", TD_DT_I64, 2, D(1, 1), D(3));
    number(&f, "one", 1);
    number(&f, "two", 2);
    list(&f, "once", 1, D(1));
    number(&f, "none", 0);
    number(&f, "minus", -100);
    expect_floats(&f, node(&f, "ConstantOfShape", "four", "zeros"), 1, D(4),
                  (const float[]){ 0, 0, 0, 0 });
    const td_onnx_node *cast = node(&f, "Cast", "one", "one_f");
    td_onnx_attr_int(f.m, "to", 1);
    expect_floats(&f, cast, 0, NULL, (const float[]){ 1 });
    expect_floats(&f, node(&f, "Expand", "one_f once", "ones"), 1, D(1), (const float[]){ 1 });
    cast = node(&f, "Cast", "two", "two_f");
    td_onnx_attr_int(f.m, "to", 1);
    expect_floats(&f, cast, 0, NULL, (const float[]){ 2 });
    expect_floats(&f, node(&f, "Expand", "two_f once", "twos"), 1, D(1), (const float[]){ 2 });
    expect_floats(&f, node(&f, "ScatterND", "zeros at1 ones", "r1"), 1, D(4),
                  (const float[]){ 0, 0, 1, 0 });
    expect_floats(&f, node(&f, "ScatterND", "r1 at2 twos", "r2"), 1, D(4),
                  (const float[]){ 0, 0, 1, 2 });
    expect_floats(&f, node(&f, "Reshape", "r2 two_two", "w"), 2, D(2, 2),
                  (const float[]){ 0, 0, 1, 2 });
    expect_floats(&f, node(&f, "Unsqueeze", "w axis1", "a"), 3, D(2, 1, 2),
                  (const float[]){ 0, 0, 1, 2 });
    expect_floats(&f, node(&f, "Unsqueeze", "w axis2", "b"), 3, D(2, 2, 1),
                  (const float[]){ 0, 0, 1, 2 });
    expect_floats(&f, node(&f, "Sub", "a b", "d"), 3, D(2, 2, 2),
                  (const float[]){ 0, 0, 0, 0, 0, 1, -1, 0 });
    cast = node(&f, "Cast", "none", "none_f");
    td_onnx_attr_int(f.m, "to", 1);
    expect_floats(&f, cast, 0, NULL, (const float[]){ 0 });
    expect_ints(&f, node(&f, "Equal", "d none_f", "same"), 3, D(2, 2, 2),
                D(1, 1, 1, 1, 1, 0, 0, 1));
    expect_ints(&f, node(&f, "Not", "same", "other"), 3, D(2, 2, 2), D(0, 0, 0, 0, 0, 1, 1, 0));
    cast = node(&f, "Cast", "minus", "minus_f");
    td_onnx_attr_int(f.m, "to", 1);
    expect_floats(&f, cast, 0, NULL, (const float[]){ -100 });
    expect_floats(&f, node(&f, "Where", "other minus_f d", "mask"), 3, D(2, 2, 2),
                  (const float[]){ 0, 0, 0, 0, 0, -100, -100, 0 });
    end(&f);
}

/* the padding of TensorFlow's SAME: the next whole number, at least 0 */
static void numbers_are_rounded_and_clipped(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    list(&f, "n", 3, D(-7, 4, 9));
    number(&f, "two", 2);
    number(&f, "none", 0);
    const td_onnx_node *cast;
    for (int i = 0; i < 3; i++) {
        const char *const from[] = { "n", "two", "none" }, *const to[] = { "n_f", "two_f",
                                                                           "none_f" };
        bool done;
        cast = node(&f, "Cast", from[i], to[i]);
        td_onnx_attr_int(f.m, "to", 1);
        expect_ok(td_onnx_fold(&f.folder, cast, NULL, &done));
        assert_true(done);
    }
    expect_floats(&f, node(&f, "Div", "n_f two_f", "half"), 1, D(3),
                  (const float[]){ -3.5F, 2, 4.5F });
    expect_floats(&f, node(&f, "Ceil", "half", "up"), 1, D(3), (const float[]){ -3, 2, 5 });
    expect_floats(&f, node(&f, "Floor", "half", "down"), 1, D(3), (const float[]){ -4, 2, 4 });
    expect_floats(&f, node(&f, "Clip", "half none_f", "least"), 1, D(3),
                  (const float[]){ 0, 2, 4.5F });
    expect_floats(&f, node(&f, "Clip", "half none_f two_f", "both"), 1, D(3),
                  (const float[]){ 0, 2, 2 });
    expect_ints(&f, node(&f, "Max", "n two", "most"), 1, D(3), D(2, 4, 9));
    expect_ints(&f, node(&f, "Max", "n", "same"), 1, D(3), D(-7, 4, 9));
    expect_left(&f, node(&f, "Clip", "half x", "unknown"));
    end(&f);
}

static void elements_are_moved(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    known(&f, "x", TD_DT_I64, 2, D(2, 3), D(1, 2, 3, 4, 5, 6));
    known(&f, "rows", TD_DT_I64, 2, D(1, 2), D(-1, 0));
    list(&f, "from", 2, D(5, -2));
    list(&f, "to", 2, D(-9, 9));
    list(&f, "axes", 2, D(1, 0));
    list(&f, "steps", 2, D(-2, 1));
    expect_ints(&f, node(&f, "Transpose", "x", "t"), 2, D(3, 2), D(1, 4, 2, 5, 3, 6));
    expect_ints(&f, node(&f, "Gather", "x rows", "g"), 3, D(1, 2, 3), D(4, 5, 6, 1, 2, 3));
    const td_onnx_node *gather = node(&f, "Gather", "x rows", "h");
    td_onnx_attr_int(f.m, "axis", 1);
    expect_ints(&f, gather, 3, D(2, 1, 2), D(3, 1, 6, 4));
    expect_ints(&f, node(&f, "Slice", "x from to axes steps", "s"), 2, D(2, 2), D(3, 1, 6, 4));
    const td_onnx_node *concat = node(&f, "Concat", "x s", "c");
    td_onnx_attr_int(f.m, "axis", -1);
    expect_ints(&f, concat, 2, D(2, 5), D(1, 2, 3, 3, 1, 4, 5, 6, 6, 4));
    known(&f, "places", TD_DT_I64, 2, D(2, 1), D(1, -2));
    expect_ints(&f, node(&f, "ScatterND", "x places x", "exchanged"), 2, D(2, 3),
                D(4, 5, 6, 1, 2, 3));
    end(&f);
}

/* positions as exporters compute them: sums of ones, sines of them, side by side */
static void positions_are_computed(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    list(&f, "dims", 3, D(1, 2, 3));
    list(&f, "by", 3, D(2, 1, 2));
    number(&f, "one", 1);
    number(&f, "last", -1);
    known(&f, "x", TD_DT_I64, 2, D(2, 2), D(1, 2, 3, 4));
    expect_floats(&f, node(&f, "ConstantOfShape", "dims", "zeros"), 3, D(1, 2, 3),
                  (const float[]){ 0, 0, 0, 0, 0, 0 });
    expect_floats(&f, node(&f, "Cos", "zeros", "ones"), 3, D(1, 2, 3),
                  (const float[]){ 1, 1, 1, 1, 1, 1 });
    expect_floats(&f, node(&f, "Sin", "zeros", "sines"), 3, D(1, 2, 3),
                  (const float[]){ 0, 0, 0, 0, 0, 0 });
    expect_floats(&f, node(&f, "CumSum", "ones one", "down"), 3, D(1, 2, 3),
                  (const float[]){ 1, 1, 1, 2, 2, 2 });
    expect_floats(&f, node(&f, "CumSum", "ones last", "right"), 3, D(1, 2, 3),
                  (const float[]){ 1, 2, 3, 1, 2, 3 });
    expect_floats(
        &f, node(&f, "Tile", "right by", "both"), 3, D(2, 2, 6),
        (const float[]){ 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3 });
    expect_ints(&f, node(&f, "CumSum", "x one", "sums"), 2, D(2, 2), D(1, 3, 3, 7));
    end(&f);
}

/* distances: ranges of floats, their squares and roots; a large Constant that is no parameter */
static void distances_are_computed(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    known(&f, "from", TD_DT_F32, 0, NULL, (const float[]){ -1 });
    known(&f, "to", TD_DT_F32, 0, NULL, (const float[]){ 1.25F });
    known(&f, "by", TD_DT_F32, 0, NULL, (const float[]){ 0.5F });
    known(&f, "never", TD_DT_F32, 0, NULL, (const float[]){ 0 });
    known(&f, "two", TD_DT_F32, 0, NULL, (const float[]){ 2 });
    known(&f, "x", TD_DT_I64, 1, D(2), D(3, 4));
    known(&f, "w", TD_DT_F32, 1, D(2), (const float[]){ 3, 4 });
    expect_floats(&f, node(&f, "Range", "from to by", "at"), 1, D(5),
                  (const float[]){ -1, -0.5F, 0, 0.5F, 1 });
    expect_floats(&f, node(&f, "Abs", "at", "apart"), 1, D(5),
                  (const float[]){ 1, 0.5F, 0, 0.5F, 1 });
    expect_floats(&f, node(&f, "Pow", "at two", "squares"), 1, D(5),
                  (const float[]){ 1, 0.25F, 0, 0.25F, 1 });
    expect_floats(&f, node(&f, "Sqrt", "squares", "roots"), 1, D(5),
                  (const float[]){ 1, 0.5F, 0, 0.5F, 1 });
    expect_left(&f, node(&f, "Range", "from to never", "a"));
    expect_left(&f, node(&f, "Range", "to from by", "b"));
    expect_left(&f, node(&f, "Pow", "x x", "c"));
    expect_left(&f, node(&f, "Abs", "w", "d"));
    expect_ok(td_onnx_folder_fix(&f.folder, "w"));
    expect_floats(&f, node(&f, "Abs", "w", "e"), 1, D(2), (const float[]){ 3, 4 });
    end(&f);
}

static void hostile_positions(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    list(&f, "by", 2, D(2, 0));
    list(&f, "few", 1, D(2));
    list(&f, "most", 2, D(1 << 23, 1 << 23));
    number(&f, "one", 1);
    number(&f, "far", 2);
    known(&f, "x", TD_DT_I64, 2, D(2, 2), D(INT64_MAX, 2, 3, 4));
    expect_left(&f, node(&f, "Tile", "x by", "a"));
    expect_left(&f, node(&f, "Tile", "x few", "b"));
    expect_left(&f, node(&f, "Tile", "x most", "c"));
    expect_left(&f, node(&f, "CumSum", "x by", "d"));
    expect_bad(&f, node(&f, "CumSum", "x far", "e"), "an axis is out of range");
    expect_bad(&f, node(&f, "CumSum", "x one", "f"), "integers overflow");
    const td_onnx_node *back = node(&f, "CumSum", "x one", "g");
    td_onnx_attr_int(f.m, "reverse", 1);
    expect_left(&f, back);
    end(&f);
}

/* a parameter is not known: training changes it */
static void parameters_are_left(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    known(&f, "w", TD_DT_F32, 2, D(2, 2), (const float[]){ 1, 2, 3, 4 });
    list(&f, "all", 1, D(4));
    expect_left(&f, node(&f, "Transpose", "w", "t"));
    expect_left(&f, node(&f, "Reshape", "w all", "r"));
    expect_left(&f, node(&f, "Add", "w w", "s"));
    expect_left(&f, node(&f, "Concat", "w w", "c"));
    end(&f);
}

static void hostile_operands(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    known(&f, "x", TD_DT_I64, 2, D(2, 3), D(1, 2, 3, 4, 5, 6));
    known(&f, "empty", TD_DT_I64, 2, D(0, INT64_MAX / 8), NULL);
    list(&f, "far", 1, D(2));
    list(&f, "huge", 3, D(1 << 20, 1 << 20, 1 << 30));
    list(&f, "negative", 2, D(-2, -3));
    list(&f, "least", 1, D(INT64_MIN));
    list(&f, "most", 1, D(INT64_MAX));
    known(&f, "out", TD_DT_I64, 2, D(1, 1), D(2));
    known(&f, "deep", TD_DT_I64, 2, D(1, 3), D(0, 0, 0));
    known(&f, "first", TD_DT_I64, 2, D(1, 1), D(0));
    expect_bad(&f, node(&f, "Gather", "x far", "a"), "an index is out of range");
    expect_left(&f, node(&f, "ConstantOfShape", "huge", "b"));
    expect_left(&f, node(&f, "ConstantOfShape", "negative", "c"));
    expect_left(&f, node(&f, "Expand", "x huge", "d"));
    expect_left(&f, node(&f, "Slice", "x most least", "e"));
    expect_left(&f, node(&f, "Transpose", "empty", "f"));
    expect_left(&f, node(&f, "Gather", "empty far", "g"));
    expect_left(&f, node(&f, "Concat", "empty empty", "h"));
    expect_bad(&f, node(&f, "ScatterND", "x out x", "i"), "as many updates as indices");
    known(&f, "row", TD_DT_I64, 2, D(1, 3), D(7, 8, 9));
    expect_bad(&f, node(&f, "ScatterND", "x out row", "j"), "an index is out of range");
    expect_left(&f, node(&f, "ScatterND", "x deep row", "k"));
    const td_onnx_node *adds = node(&f, "ScatterND", "x first row", "l");
    td_onnx_attr_text(f.m, "reduction", "add");
    expect_left(&f, adds);
    const td_onnx_node *perm = node(&f, "Transpose", "x", "m");
    td_onnx_attr_ints(f.m, "perm", 2, D(0, 0));
    expect_bad(&f, perm, "not an order of the dimensions");
    end(&f);
}

/* the whole model shares one limit */
static void results_are_limited(void **state)
{
    (void)state;
    fixture f;
    bool done = true;
    int n = 0;
    char name[16];
    begin(&f);
    list(&f, "million", 1, D(1 << 20));
    for (; done && n < 100; n++) {
        snprintf(name, sizeof name, "y%d", n);
        expect_ok(
            td_onnx_fold(&f.folder, node(&f, "ConstantOfShape", "million", name), NULL, &done));
    }
    assert_int_equal(n, TD_ONNX_KNOWN_MAX / (1 << 20) + 1);
    end(&f);
}

/* a few elements that many nodes write as often as there are indices */
static void work_has_limits(void **state)
{
    (void)state;
    fixture f;
    enum { N = 1 << 22, LEFT = TD_ONNX_KNOWN_MAX / N / 2 };
    char x[8], y[8];
    bool done;
    begin(&f);
    list(&f, "one", 1, D(1));
    list(&f, "rows", 2, D(N, 1));
    list(&f, "many", 1, D(N));
    const int64_t one = 1;
    list(&f, "zero", 1, D(0));
    td_onnx_node *n = node(&f, "Expand", "zero rows", "at");
    expect_ok(td_onnx_fold(&f.folder, n, NULL, &done));
    expect_ok(td_onnx_fold(&f.folder, node(&f, "ConstantOfShape", "many", "by"), NULL, &done));
    expect_floats(&f, node(&f, "ConstantOfShape", "one", "x0"), 1, &one, (const float[]){ 0 });
    for (int i = 0; i <= LEFT; i++) {
        char operands[40];
        snprintf(x, sizeof x, "x%d", i);
        snprintf(y, sizeof y, "x%d", i + 1);
        snprintf(operands, sizeof operands, "%s at by", x);
        n = node(&f, "ScatterND", operands, y);
        if (i < LEFT)
            expect_floats(&f, n, 1, &one, (const float[]){ 0 });
        else
            expect_left(&f, n);
    }
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mask_of_shifted_windows),
        cmocka_unit_test(numbers_are_rounded_and_clipped),
        cmocka_unit_test(elements_are_moved),
        cmocka_unit_test(positions_are_computed),
        cmocka_unit_test(distances_are_computed),
        cmocka_unit_test(hostile_positions),
        cmocka_unit_test(parameters_are_left),
        cmocka_unit_test(hostile_operands),
        cmocka_unit_test(results_are_limited),
        cmocka_unit_test(work_has_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
