/*
 * test_shape_values.c -- constants and shapes of ONNX models, and hostile ones
 */
#include "onnx_import/shape_values.h"

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

static void known(fixture *f, const char *name, int rank, int n, const int64_t *at)
{
    const int64_t dim = n;
    td_onnx_add_tensor(f->m, name, TD_DT_I64, rank, &dim, at);
    expect_ok(f->m->st);
    td_tensor *t = td_arena_alloc(&f->folder.arena, 1, sizeof *t);
    assert_non_null(t);
    *t = f->m->tensors[f->m->n_tensors - 1];
    expect_ok(td_map_set(&f->tensors, name, t));
}

static td_onnx_node *node(fixture *f, const char *op, const char *a, const char *b, const char *y)
{
    td_onnx_add_node(f->m, op, y, b ? 2 : 1, (const char *[]){ a, b }, y);
    expect_ok(f->m->st);
    return &f->m->nodes[f->m->n_nodes - 1];
}

static void expect_list(fixture *f, const td_onnx_node *n, const td_type *x, int rank, int count,
                        const int64_t *wanted)
{
    bool done;
    expect_ok(td_onnx_fold(&f->folder, n, x, &done));
    assert_true(done);
    const td_tensor *t = td_map_get(&f->tensors, n->out[0]);
    assert_int_equal(t->rank, rank);
    assert_int_equal(t->n_bytes, (size_t)count * sizeof *wanted);
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

static void shapes_are_lists(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    const td_type x = td_type_4d(TD_DT_F32, 2, 8, 5, 7);
    known(&f, "one", 0, 1, (int64_t[]){ 1 });
    known(&f, "minus", 1, 1, (int64_t[]){ -1 });
    known(&f, "axes", 1, 1, (int64_t[]){ 0 });
    expect_list(&f, node(&f, "Shape", "x", NULL, "s"), &x, 1, 4, (int64_t[]){ 2, 8, 5, 7 });
    expect_list(&f, node(&f, "Gather", "s", "one", "c"), NULL, 0, 1, (int64_t[]){ 8 });
    expect_list(&f, node(&f, "Gather", "s", "minus", "w"), NULL, 1, 1, (int64_t[]){ 7 });
    expect_list(&f, node(&f, "Unsqueeze", "c", "axes", "c1"), NULL, 1, 1, (int64_t[]){ 8 });
    expect_list(&f, node(&f, "Squeeze", "c1", "axes", "c2"), NULL, 0, 1, (int64_t[]){ 8 });
    const td_onnx_node *join = node(&f, "Concat", "c1", "minus", "j");
    td_onnx_attr_int(f.m, "axis", 0);
    expect_list(&f, join, NULL, 1, 2, (int64_t[]){ 8, -1 });
    expect_list(&f, node(&f, "Mul", "s", "minus", "p"), NULL, 1, 4, (int64_t[]){ -2, -8, -5, -7 });
    expect_list(&f, node(&f, "Div", "c", "w", "q"), NULL, 1, 1, (int64_t[]){ 1 });
    const td_onnx_node *part = node(&f, "Shape", "x", NULL, "s2");
    td_onnx_attr_int(f.m, "start", -2);
    expect_list(&f, part, &x, 1, 2, (int64_t[]){ 5, 7 });
    end(&f);
}

/* torch.onnx writes the scale of attention as 1 / sqrt(columns), and the shape of an Expand as a
   choice between two lists */
static void scales_and_choices_are_computed(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    known(&f, "list", 1, 3, (int64_t[]){ 2, -1, 7 });
    known(&f, "ones", 1, 3, (int64_t[]){ 1, 1, 1 });
    known(&f, "three", 1, 1, (int64_t[]){ 3 });
    known(&f, "minus", 0, 1, (int64_t[]){ -1 });
    known(&f, "open", 1, 1, (int64_t[]){ -1 });
    expect_list(&f, node(&f, "Shape", "list", NULL, "length"), NULL, 1, 1, (int64_t[]){ 3 });
    expect_list(&f, node(&f, "Reshape", "list", "open", "same"), NULL, 1, 3,
                (int64_t[]){ 2, -1, 7 });
    expect_list(&f, node(&f, "Equal", "list", "minus", "equal"), NULL, 1, 3,
                (int64_t[]){ 0, 1, 0 });
    expect_list(&f, node(&f, "Mod", "list", "three", "mod"), NULL, 1, 3, (int64_t[]){ 2, 2, 1 });
    td_onnx_add_node(f.m, "Where", "where", 3, (const char *[]){ "equal", "ones", "list" },
                     "where");
    expect_ok(f.m->st);
    expect_list(&f, &f.m->nodes[f.m->n_nodes - 1], NULL, 1, 3, (int64_t[]){ 2, 1, 7 });
    known(&f, "four", 1, 1, (int64_t[]){ 4 });
    expect_bad(&f, node(&f, "Reshape", "list", "four", "bad"), "another length");
    end(&f);
}

static void what_is_not_known_is_left(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    known(&f, "s", 1, 2, (int64_t[]){ 3, 4 });
    expect_left(&f, node(&f, "Relu", "x", NULL, "a"));
    expect_left(&f, node(&f, "Shape", "x", NULL, "b")); /* a value without a type */
    expect_left(&f, node(&f, "Gather", "s", "x", "c"));
    expect_left(&f, node(&f, "Add", "s", "x", "d"));
    expect_left(&f, node(&f, "Identity", "x", NULL, "e"));
    end(&f);
}

static void hostile_integers_are_errors(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    known(&f, "s", 1, 2, (int64_t[]){ INT64_MIN, 4 });
    known(&f, "far", 0, 1, (int64_t[]){ 2 });
    known(&f, "zero", 0, 1, (int64_t[]){ 0 });
    known(&f, "minus", 0, 1, (int64_t[]){ -1 });
    expect_bad(&f, node(&f, "Gather", "s", "far", "a"), "outside its list");
    expect_bad(&f, node(&f, "Div", "s", "zero", "b"), "divided by 0");
    expect_bad(&f, node(&f, "Div", "s", "minus", "c"), "overflow");
    expect_bad(&f, node(&f, "Mul", "s", "minus", "d"), "overflow");
    expect_bad(&f, node(&f, "Squeeze", "s", NULL, "e"), "more than one number");
    expect_bad(&f, node(&f, "Constant", "s", NULL, "g"), "a constant has one attribute");
    end(&f);
}

/* --- tensors of indices ----------------------------------------------------------------------- */

static void tensor(fixture *f, const char *name, int rank, const int64_t *dim, const int64_t *at)
{
    td_onnx_add_tensor(f->m, name, TD_DT_I64, rank, dim, at);
    expect_ok(f->m->st);
    td_tensor *t = td_arena_alloc(&f->folder.arena, 1, sizeof *t);
    assert_non_null(t);
    *t = f->m->tensors[f->m->n_tensors - 1];
    expect_ok(td_map_set(&f->tensors, name, t));
}

static void expect_indices(fixture *f, const td_onnx_node *n, int rank, const int64_t *dim,
                           const int64_t *wanted)
{
    bool done;
    int64_t count = 1;
    expect_ok(td_onnx_fold(&f->folder, n, NULL, &done));
    assert_true(done);
    const td_tensor *t = td_map_get(&f->tensors, n->out[0]);
    assert_int_equal(t->rank, rank);
    for (int d = 0; d < rank; d++) {
        assert_int_equal(t->dim[d], dim[d]);
        count *= dim[d];
    }
    assert_int_equal(t->n_bytes, (size_t)count * 8);
    assert_memory_equal(t->data, wanted, t->n_bytes);
}

/* as_strided of [2, 3, 1]: 3 n + c */
static void indices_of_a_batch(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    known(&f, "zero", 0, 1, (const int64_t[]){ 0 });
    known(&f, "one", 0, 1, (const int64_t[]){ 1 });
    known(&f, "two", 0, 1, (const int64_t[]){ 2 });
    known(&f, "three", 0, 1, (const int64_t[]){ 3 });
    known(&f, "axes", 1, 2, (const int64_t[]){ 1, 2 });
    tensor(&f, "channels", 3, (const int64_t[]){ 1, 3, 1 }, (const int64_t[]){ 0, 1, 2 });
    td_onnx_add_node(f.m, "Range", "r", 3, (const char *[]){ "zero", "two", "one" }, "r");
    expect_indices(&f, &f.m->nodes[0], 1, (const int64_t[]){ 2 }, (const int64_t[]){ 0, 1 });
    expect_list(&f, node(&f, "Mul", "r", "three", "m"), NULL, 1, 2, (const int64_t[]){ 0, 3 });
    expect_indices(&f, node(&f, "Unsqueeze", "m", "axes", "u"), 3, (const int64_t[]){ 2, 1, 1 },
                   (const int64_t[]){ 0, 3 });
    expect_indices(&f, node(&f, "Add", "u", "channels", "a"), 3, (const int64_t[]){ 2, 3, 1 },
                   (const int64_t[]){ 0, 1, 2, 3, 4, 5 });
    known(&f, "flat", 1, 2, (const int64_t[]){ -1, 3 });
    expect_indices(&f, node(&f, "Reshape", "a", "flat", "b"), 2, (const int64_t[]){ 2, 3 },
                   (const int64_t[]){ 0, 1, 2, 3, 4, 5 });
    known(&f, "last", 1, 1, (const int64_t[]){ -1 });
    expect_indices(&f, node(&f, "Squeeze", "a", "last", "s"), 2, (const int64_t[]){ 2, 3 },
                   (const int64_t[]){ 0, 1, 2, 3, 4, 5 });
    known(&f, "wide", 1, 3, (const int64_t[]){ 2, 1, 2 });
    expect_indices(&f, node(&f, "Expand", "u", "wide", "e"), 3, (const int64_t[]){ 2, 1, 2 },
                   (const int64_t[]){ 0, 0, 3, 3 });
    end(&f);
}

static void indices_have_limits(void **state)
{
    (void)state;
    fixture f;
    bool done;
    begin(&f);
    known(&f, "zero", 0, 1, (const int64_t[]){ 0 });
    known(&f, "one", 0, 1, (const int64_t[]){ 1 });
    known(&f, "many", 0, 1, (const int64_t[]){ TD_ONNX_KNOWN_MAX - 3 });
    known(&f, "more", 0, 1, (const int64_t[]){ INT64_MAX });
    known(&f, "sides", 1, 3, (const int64_t[]){ 1 << 20, 1 << 20, 1 << 20 });
    tensor(&f, "odd", 2, (const int64_t[]){ 1, 3 }, (const int64_t[]){ 1, 2, INT64_MAX });
    tensor(&f, "other", 2, (const int64_t[]){ 1, 2 }, (const int64_t[]){ 1, 2 });
    td_onnx_add_node(f.m, "Range", "a", 3, (const char *[]){ "zero", "more", "one" }, "a");
    expect_left(&f, &f.m->nodes[0]);
    td_onnx_add_node(f.m, "Range", "b", 3, (const char *[]){ "zero", "more", "zero" }, "b");
    expect_left(&f, &f.m->nodes[1]);
    expect_left(&f, node(&f, "Expand", "odd", "sides", "c"));
    expect_left(&f, node(&f, "Add", "odd", "other", "d"));
    const td_onnx_node *n = node(&f, "Mul", "odd", "odd", "e");
    expect_error(td_onnx_fold(&f.folder, n, NULL, &done), TD_EFORMAT, "integers overflow");
    td_onnx_add_node(f.m, "Range", "g", 3, (const char *[]){ "zero", "many", "one" }, "g");
    expect_ok(td_onnx_fold(&f.folder, &f.m->nodes[f.m->n_nodes - 1], NULL, &done));
    assert_true(done); /* all that there may be: the product had 3 */
    expect_left(&f, node(&f, "Add", "odd", "odd", "h"));
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_lists),
        cmocka_unit_test(scales_and_choices_are_computed),
        cmocka_unit_test(what_is_not_known_is_left),
        cmocka_unit_test(hostile_integers_are_errors),
        cmocka_unit_test(indices_of_a_batch),
        cmocka_unit_test(indices_have_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
