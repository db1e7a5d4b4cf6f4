/*
 * test_onnx.c -- ONNX files: written and read back, and hostile ones
 */
#include "onnx_file/onnx.h"

#include <stdio.h>

#include "base/file_io.h"
#include "io/atomic.h"
#include "io/protobuf.h"
#include "support/allocations.h"
#include "support/expect.h"
#include "support/full_disk.h"
#include "support/scratch.h"

static const float weights[6] = { 1, 2, 3, -4, 5, 6 };
static const int64_t shape[2] = { 3, 2 };

static td_onnx_value value(const char *name, int64_t columns)
{
    td_onnx_value v = { .name = name, .dtype = TD_DT_F32, .rank = 2 };
    v.dim[0] = (td_onnx_dim){ -1, "N" };
    v.dim[1].value = columns;
    return v;
}

/* y = relu(x w^T) */
static void fill(td_onnx *m)
{
    const td_onnx_value x = value("x", 2), h = value("h", 3), y = value("y", 3);
    m->opset = 17;
    m->ir_version = td_onnx_ir_version(17);
    m->producer = td_onnx_text(m, "tandem");
    m->graph_name = td_onnx_text(m, "small");
    td_onnx_add_value(m, &m->inputs, &x);
    td_onnx_add_value(m, &m->values, &h);
    td_onnx_add_value(m, &m->outputs, &y);
    td_onnx_add_tensor(m, "w", TD_DT_F32, 2, shape, weights);
    td_onnx_add_node(m, "Gemm", "gemm", 2, (const char *[]){ "x", "w" }, "h");
    td_onnx_attr_int(m, "transB", 1);
    td_onnx_attr_float(m, "alpha", 1);
    td_onnx_attr_ints(m, "list", 3, (const int64_t[]){ 1, -2, 1ll << 40 });
    td_onnx_attr_text(m, "mode", "caf\xc3\xa9");
    td_onnx_add_node(m, "Relu", "relu", 1, (const char *[]){ "h" }, "y");
    td_onnx_set_meta(m, "key", "a \"value\"");
}

static td_onnx *sample(void)
{
    td_onnx *m;
    expect_ok(td_onnx_new(&m));
    fill(m);
    expect_ok(m->st);
    return m;
}

static void load(const char *path, char **bytes, size_t *n)
{
    expect_ok(td_file_read(path, 1 << 20, bytes, n));
}

/* the sample after `change`, written without looking at it, read: must fail */
static void expect_refused(void (*change)(td_onnx *m), td_status st, const char *says)
{
    const char *path = td_scratch_path("changed.onnx");
    td_onnx *m = sample(), *back;
    change(m);
    expect_ok(td_onnx_write(m, path, NULL, NULL));
    expect_error(td_onnx_read(path, &back), st, says);
    assert_null(back);
    td_onnx_free(m);
}

static void test_round_trip(void **state)
{
    (void)state;
    const char *path = td_scratch_path("a.onnx");
    td_onnx *m = sample(), *b;
    expect_ok(td_onnx_check(m, "m"));
    expect_ok(td_onnx_write(m, path, NULL, NULL));
    expect_ok(td_onnx_read(path, &b));
    assert_int_equal(b->opset, 17);
    assert_int_equal(b->ir_version, 8);
    assert_string_equal(b->producer, "tandem");
    assert_string_equal(b->graph_name, "small");
    assert_string_equal(td_onnx_meta_find(b, "key"), "a \"value\"");
    assert_null(td_onnx_meta_find(b, "absent"));
    assert_int_equal(b->n_nodes, 2);
    assert_int_equal(b->n_tensors, 1);
    assert_int_equal(b->inputs.n, 1);
    assert_string_equal(b->inputs.at[0].dim[0].param, "N");
    assert_int_equal(b->inputs.at[0].dim[1].value, 2);
    assert_string_equal(b->outputs.at[0].name, "y");
    assert_string_equal(b->values.at[0].name, "h");
    assert_int_equal(b->tensors[0].n_bytes, sizeof weights);
    assert_memory_equal(b->tensors[0].data, weights, sizeof weights);

    const td_onnx_node *n = &b->nodes[0];
    assert_string_equal(n->op, "Gemm");
    assert_string_equal(n->in[1], "w");
    assert_int_equal(td_onnx_attr_find(n, "transB")->i, 1);
    assert_true(td_onnx_attr_find(n, "alpha")->f == 1);
    assert_string_equal(td_onnx_attr_find(n, "mode")->text, "caf\xc3\xa9");
    assert_int_equal(td_onnx_attr_find(n, "list")->n, 3);
    assert_true(td_onnx_attr_find(n, "list")->ints[2] == 1ll << 40);
    td_onnx_free(b);
    td_onnx_free(m);
}

static void test_types_and_versions(void **state)
{
    (void)state;
    for (int d = TD_DT_NONE + 1; d < TD_N_DTYPE; d++)
        assert_int_equal(td_onnx_dtype_of(td_onnx_dtype_number((td_dtype)d)), d);
    assert_int_equal(td_onnx_dtype_of(9), TD_DT_NONE); /* bool */
    assert_int_equal(td_onnx_ir_version(13), 7);
    assert_int_equal(td_onnx_ir_version(19), 9);
    assert_int_equal(td_onnx_ir_version(21), 10);
}

/* --- the graph -------------------------------------------------------------------------------- */

static void cut_input(td_onnx *m)
{
    m->inputs.n = 0;
}

static void swap_nodes(td_onnx *m)
{
    td_onnx_node first = m->nodes[0];
    m->nodes[0] = m->nodes[1];
    m->nodes[1] = first;
}

static void make_circle(td_onnx *m)
{
    m->nodes[0].in[0] = "y";
}

static void give_twice(td_onnx *m)
{
    m->nodes[1].out[0] = "h";
}

static void name_twice(td_onnx *m)
{
    m->nodes[1].name = "gemm";
}

static void take_input_name(td_onnx *m)
{
    m->tensors[0].name = "x";
}

static void no_name(td_onnx *m)
{
    m->nodes[1].out[0] = "";
}

static void no_output(td_onnx *m)
{
    m->outputs.n = 0;
}

static void other_output(td_onnx *m)
{
    m->outputs.at[0].name = "z";
}

static void other_shape(td_onnx *m)
{
    m->values.at[0].name = "z";
}

static void longer(td_onnx *m)
{
    m->tensors[0].dim[0] = 4;
}

static void negative(td_onnx *m)
{
    m->tensors[0].dim[0] = -3;
}

static void overflow(td_onnx *m)
{
    m->tensors[0].dim[0] = m->tensors[0].dim[1] = 1ll << 62;
}

static void bool_tensor(td_onnx *m)
{
    m->tensors[0].dtype = TD_DT_NONE; /* is written as type 0 */
}

static void same_attr(td_onnx *m)
{
    m->nodes[0].attr[1].name = "transB";
}

static void old_opset(td_onnx *m)
{
    m->opset = 0;
}

static void new_opset(td_onnx *m)
{
    m->opset = 999;
}

static void no_op(td_onnx *m)
{
    m->nodes[0].op = "";
}

static void no_result(td_onnx *m)
{
    m->nodes[1].n_out = 0;
}

static void two_outputs(td_onnx *m)
{
    td_onnx_value y = m->outputs.at[0];
    td_onnx_add_value(m, &m->outputs, &y);
}

static void test_no_graph(void **state)
{
    (void)state;
    expect_refused(cut_input, TD_EFORMAT, "'gemm' reads 'x'");
    expect_refused(swap_nodes, TD_EFORMAT, "node 'relu' reads 'h'");
    expect_refused(make_circle, TD_EFORMAT, "it is missing, or the graph has a cycle");
    expect_refused(give_twice, TD_EFORMAT, "name 'h' is");
    expect_refused(take_input_name, TD_EFORMAT, "reads 'w'"); /* 'x' is a tensor, no input */
    expect_refused(no_name, TD_EFORMAT, "a result has no name");
    expect_refused(no_output, TD_EFORMAT, "has no output");
    expect_refused(other_output, TD_EFORMAT, "output 'z'");
    expect_refused(two_outputs, TD_EFORMAT, "named 'y'");
    expect_refused(other_shape, TD_EFORMAT, "for 'z', but");
    expect_refused(longer, TD_EFORMAT, "'w' has 24 bytes, its shape needs 32");
    expect_refused(negative, TD_EFORMAT, "a dimension of -3");
    expect_refused(overflow, TD_EFORMAT, "too many elements");
    expect_refused(bool_tensor, TD_EUNSUPPORTED, "has a tensor of");
    expect_refused(same_attr, TD_EFORMAT, "the attribute 'transB' twice");
    expect_refused(old_opset, TD_EUNSUPPORTED, "opset 0, wanted 11 to 21");
    expect_refused(new_opset, TD_EUNSUPPORTED, "opset 999");
    expect_refused(no_op, TD_EFORMAT, "has no operator");
    expect_refused(no_result, TD_EFORMAT, "has no result");
}

/* nodes of one name; a tensor that is an input, too, as before IR version 4 */
static void test_what_programs_write(void **state)
{
    (void)state;
    const char *path = td_scratch_path("lenient.onnx");
    td_onnx *m = sample(), *b;
    const td_onnx_value w = value("w", 2);
    name_twice(m);
    td_onnx_add_value(m, &m->inputs, &w);
    expect_ok(m->st);
    expect_ok(td_onnx_write(m, path, NULL, NULL));
    expect_ok(td_onnx_read(path, &b));
    assert_int_equal(b->inputs.n, 1);
    assert_string_equal(b->inputs.at[0].name, "x");
    assert_string_equal(b->nodes[1].name, "gemm");
    td_onnx_free(b);
    td_onnx_free(m);
}

/* opsets of other domains, an operator of "ai.onnx", a list of floats, what a tensor was */
static void test_other_fields(void **state)
{
    (void)state;
    td_text attr = { 0 }, node = { 0 }, graph = { 0 }, model = { 0 }, opset = { 0 }, y = { 0 };
    td_text other = { 0 }, size = { 0 }, of = { 0 }, pair = { 0 }, value = { 0 };
    const float floats[2] = { 0.5F, -3 };
    td_onnx *m;
    td_pb_put_text(&attr, 1, "value_floats");
    td_pb_put_bytes(&attr, 7, floats, sizeof floats);
    td_pb_put_float(&attr, 7, 7);
    td_pb_put_int(&attr, 20, 6);
    td_pb_put_text(&node, 2, "y");
    td_pb_put_text(&node, 4, "Constant");
    td_pb_put_message(&node, 5, &attr);
    td_pb_put_text(&node, 7, "ai.onnx");
    td_pb_put_message(&graph, 1, &node);
    td_pb_put_int(&size, 1, 1);
    td_pb_put_message(&of, 1, &size);
    td_pb_put_text(&y, 1, "y");
    td_pb_put_message(&y, 2, &of);
    td_pb_put_message(&graph, 12, &y);
    td_pb_put_text(&pair, 1, "pkg.torch.export.graph_signature.InputSpec.kind");
    td_pb_put_text(&pair, 2, "BUFFER");
    td_pb_put_text(&value, 1, "y");
    td_pb_put_message(&value, 4, &pair);
    td_pb_put_message(&graph, 13, &value);
    td_pb_put_int(&opset, 2, 13);
    td_pb_put_message(&model, 8, &opset);
    td_pb_put_text(&other, 1, "com.microsoft");
    td_pb_put_int(&other, 2, 1);
    td_pb_put_message(&model, 8, &other);
    td_pb_put_message(&model, 7, &graph);
    expect_ok(td_onnx_parse(model.data, model.len, "x", &m));
    assert_int_equal(m->opset, 13);
    const td_onnx_attr *a = &m->nodes[0].attr[0];
    assert_int_equal(a->kind, TD_ONNX_FLOATS);
    assert_int_equal(a->n, 3);
    assert_true(a->floats[0] >= 0.5F && a->floats[1] <= -3 && a->floats[2] >= 7);
    assert_string_equal(m->values.at[0].kind, "BUFFER");
    td_onnx_free(m);
    td_pb_put_message(&model, 8, &opset);
    expect_error(td_onnx_parse(model.data, model.len, "x", &m), TD_EFORMAT, "two opsets");
    td_text *const all[] = { &attr,  &node, &graph, &model, &opset, &y,
                             &other, &size, &of,    &pair,  &value };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        td_text_release(all[i]);
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* no prefix of a file is a file; none is read beyond its end */
static void test_cut_everywhere(void **state)
{
    (void)state;
    const char *path = td_scratch_path("cut.onnx");
    char *bytes;
    size_t n;
    td_onnx *m = sample(), *b;
    expect_ok(td_onnx_write(m, path, NULL, NULL));
    load(path, &bytes, &n);
    for (size_t i = 0; i < n; i++) {
        char *exact = td_alloc(i + 1, 1); /* a sanitizer sees the end */
        assert_non_null(exact);
        memcpy(exact, bytes, i);
        td_status st = td_onnx_parse(exact, i, "cut", &b);
        if (st == TD_OK) {
            print_error("%zu of %zu bytes were taken for a whole file\n", i, n);
            fail();
        }
        assert_null(b);
        assert_true(*td_error_message() != '\0');
        td_free(exact);
    }
    td_free(bytes);
    td_onnx_free(m);
}

/* a model with one more field in `where`: 'm' model, 'g' graph, 't' its tensor, 'n' its node, 'a'
   its node's attribute */
static void expect_field_refused(char where, int field, bool is_number, td_status st,
                                 const char *says)
{
    td_text text[5] = { { 0 } }, opset = { 0 };
    static const char levels[] = "agntm"; /* in the order of text[] */
    td_text *attr = &text[0], *graph = &text[1], *node = &text[2], *tensor = &text[3],
            *model = &text[4];
    td_text *at = &text[strchr(levels, where) - levels];
    td_onnx *m;
    if (is_number)
        td_pb_put_int(at, field, 1);
    else
        td_pb_put_bytes(at, field, "\x0a\x01x", 3);
    td_pb_put_text(attr, 1, "attr");
    if (where == 'a')
        td_pb_put_message(node, 5, attr);
    td_pb_put_text(tensor, 8, "tensor");
    td_pb_put_message(graph, 1, node);
    td_pb_put_message(graph, 5, tensor);
    td_pb_put_int(&opset, 2, 13);
    td_pb_put_message(model, 8, &opset);
    td_pb_put_message(model, 7, graph);
    expect_error(td_onnx_parse(model->data, model->len, "x", &m), st, says);
    for (int i = 0; i < 5; i++)
        td_text_release(&text[i]);
    td_text_release(&opset);
}

static void test_what_is_not_read(void **state)
{
    (void)state;
    expect_field_refused('t', 13, false, TD_EFORMAT, "external data that it does not use");
    expect_field_refused('t', 14, true, TD_EUNSUPPORTED, "external data");
    expect_field_refused('t', 3, false, TD_EUNSUPPORTED, "a part of a tensor");
    expect_field_refused('t', 6, false, TD_EUNSUPPORTED, "one of texts");
    expect_field_refused('t', 4, false, TD_EFORMAT, "'tensor' has numbers of two kinds");
    expect_field_refused('t', 7, true, TD_EFORMAT, "'tensor' has numbers of two kinds");
    expect_field_refused('a', 6, false, TD_EUNSUPPORTED, "a graph or several tensors inside");
    expect_field_refused('a', 5, true, TD_EFORMAT, "is not a message");
    expect_field_refused('a', 8, true, TD_EFORMAT, "'attr' has no type");
    expect_field_refused('a', 21, false, TD_EUNSUPPORTED, "a function's attribute");
    expect_field_refused('n', 7, false, TD_EUNSUPPORTED, "another domain");
    expect_field_refused('g', 15, false, TD_EUNSUPPORTED, "sparse");
    expect_field_refused('m', 25, false, TD_EUNSUPPORTED, "functions");
    expect_field_refused('m', 20, false, TD_EUNSUPPORTED, "training information");
    expect_field_refused('g', 1, true, TD_EFORMAT, "8: field 1 is not a message");
    expect_field_refused('m', 7, false, TD_EFORMAT, "");
}

/* tensor fields: data_type 2, dims 1, float_data 4, int32_data 5, int64_data 7, name 8, double_data
   10 */
static td_status read_listed(int type, int64_t n, const td_text *list, td_onnx **out)
{
    td_text tensor = { 0 }, graph = { 0 }, model = { 0 }, opset = { 0 }, node = { 0 }, y = { 0 };
    td_text size = { 0 }, of = { 0 };
    td_pb_put_int(&tensor, 1, n);
    td_pb_put_int(&tensor, 2, type);
    td_text_add_bytes(&tensor, list->data, list->len);
    td_pb_put_text(&tensor, 8, "t");
    td_pb_put_text(&node, 1, "t");
    td_pb_put_text(&node, 2, "y");
    td_pb_put_text(&node, 4, "Identity");
    td_pb_put_message(&graph, 1, &node);
    td_pb_put_message(&graph, 5, &tensor);
    td_pb_put_int(&size, 1, 1);
    td_pb_put_message(&of, 1, &size);
    td_pb_put_text(&y, 1, "y");
    td_pb_put_message(&y, 2, &of);
    td_pb_put_message(&graph, 12, &y);
    td_pb_put_int(&opset, 2, 13);
    td_pb_put_message(&model, 8, &opset);
    td_pb_put_message(&model, 7, &graph);
    const td_status st = td_onnx_parse(model.data, model.len, "x", out);
    td_text *const all[] = { &tensor, &graph, &model, &opset, &node, &y, &size, &of };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        td_text_release(all[i]);
    return st;
}

static void expect_list(int type, int64_t n, td_text *list, const void *wanted, size_t n_bytes)
{
    td_onnx *m;
    expect_ok(read_listed(type, n, list, &m));
    assert_int_equal(m->tensors[0].n_bytes, n_bytes);
    assert_memory_equal(m->tensors[0].data, wanted, n_bytes);
    td_onnx_free(m);
    td_text_release(list);
}

static void test_numbers_in_lists(void **state)
{
    (void)state;
    td_text list = { 0 };
    td_onnx *m;
    static const float floats[3] = { 1.5F, -2, 3e-20F };
    td_pb_put_bytes(&list, 4, floats, sizeof floats); /* packed */
    expect_list(1, 3, &list, floats, sizeof floats);
    for (int i = 0; i < 3; i++)
        td_pb_put_float(&list, 4, floats[i]); /* one by one */
    expect_list(1, 3, &list, floats, sizeof floats);
    static const double doubles[2] = { 1e300, -0.1 };
    td_pb_put_bytes(&list, 10, doubles, sizeof doubles);
    expect_list(11, 2, &list, doubles, sizeof doubles);
    static const int64_t longs[3] = { -1, 1ll << 60, 7 };
    for (int i = 0; i < 3; i++)
        td_pb_put_int(&list, 7, longs[i]);
    expect_list(7, 3, &list, longs, sizeof longs);
    td_pb_put_bytes(&list, 5, "\xff\x01\x03", 3); /* packed: 255, 3 */
    expect_list(2, 2, &list, "\xff\x03", 2);

    td_pb_put_bytes(&list, 4, floats, 7);
    expect_error(read_listed(1, 1, &list, &m), TD_EFORMAT, "malformed");
    td_text_release(&list);
    td_pb_put_bytes(&list, 4, floats, 8);
    expect_error(read_listed(1, 3, &list, &m), TD_EFORMAT, "8 bytes, its shape needs 12");
    expect_error(read_listed(7, 2, &list, &m), TD_EFORMAT, "numbers of two kinds");
    td_pb_put_bytes(&list, 9, floats, 8);
    expect_error(read_listed(1, 2, &list, &m), TD_EFORMAT, "numbers of two kinds");
    td_text_release(&list);
}

static void test_no_model(void **state)
{
    (void)state;
    td_onnx *m;
    td_text t = { 0 };
    expect_error(td_onnx_parse("", 0, "x", &m), TD_EFORMAT, "it has no graph");
    expect_error(td_onnx_parse("\x3a\x00", 2, "x", &m), TD_EFORMAT, "it has no opset");
    td_pb_put_bytes(&t, 7, "", 0);
    td_pb_put_bytes(&t, 7, "", 0);
    expect_error(td_onnx_parse(t.data, t.len, "x", &m), TD_EFORMAT, "two graphs");
    td_text_release(&t);
    expect_error(td_onnx_read(td_scratch_path("absent.onnx"), &m), TD_ENOTFOUND, "absent.onnx");
    expect_error(td_onnx_read(td_scratch_folder(), &m), TD_EIO, "");
}

/* a million nodes of two bytes would take a hundred times the file */
static void test_too_many(void **state)
{
    (void)state;
    td_text graph = { 0 }, model = { 0 };
    td_onnx *m;
    for (int i = 0; i < 1000001; i++)
        td_text_add_bytes(&graph, "\x0a\x00", 2);
    td_pb_put_message(&model, 7, &graph);
    expect_error(td_onnx_parse(model.data, model.len, "x", &m), TD_ELIMIT, "more than 1000000");
    td_text_release(&graph);
    td_text_release(&model);
}

/* --- writing ---------------------------------------------------------------------------------- */

static td_status refuse(void *ctx, const char *written)
{
    td_onnx *m;
    expect_ok(td_onnx_read(written, &m)); /* whole, under another name */
    td_onnx_free(m);
    ++*(int *)ctx;
    return td_error(TD_EFORMAT, "not this one");
}

static void test_old_file_stays(void **state)
{
    (void)state;
    const char *path = td_scratch_path("old.onnx");
    td_onnx *m = sample();
    char *bytes;
    size_t n;
    int calls = 0;
    expect_ok(td_file_write(path, "old", 3));
    expect_error(td_onnx_write(m, path, refuse, &calls), TD_EFORMAT, "not this one");
    assert_int_equal(calls, 1);
    td_atomic_set_calls(&td_test_full_disk);
    expect_error(td_onnx_write(m, path, NULL, NULL), TD_EIO, "old.onnx");
    td_atomic_set_calls(NULL);
    load(path, &bytes, &n);
    assert_int_equal(n, 3);
    assert_memory_equal(bytes, "old", 3);
    assert_int_equal(td_scratch_count("old.onnx"), 1);
    td_free(bytes);
    td_onnx_free(m);
}

/* sizes are added up before a byte of it is touched */
static void test_two_gib(void **state)
{
    (void)state;
    td_onnx *m = sample();
    td_onnx_add_tensor(m, "huge", TD_DT_F32, 2, (const int64_t[]){ 1 << 16, 1 << 14 }, weights);
    expect_error(td_onnx_write(m, td_scratch_path("huge.onnx"), NULL, NULL), TD_ELIMIT,
                 "4.00 GiB, but an ONNX file without external data holds at most 2");
    assert_int_equal(td_scratch_count("huge.onnx"), 0);
    td_onnx_free(m);
}

static td_status write_and_read(void)
{
    const char *path = td_scratch_path("memory.onnx");
    td_onnx *m = NULL, *b = NULL;
    td_status st = td_onnx_new(&m);
    if (st == TD_OK) {
        fill(m);
        st = td_onnx_write(m, path, NULL, NULL);
    }
    if (st == TD_OK)
        st = td_onnx_read(path, &b);
    td_onnx_free(m);
    td_onnx_free(b);
    return st;
}

static void test_memory(void **state)
{
    (void)state;
    td_test_allocations(write_and_read, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),       cmocka_unit_test(test_types_and_versions),
        cmocka_unit_test(test_no_graph),         cmocka_unit_test(test_cut_everywhere),
        cmocka_unit_test(test_other_fields),     cmocka_unit_test(test_what_programs_write),
        cmocka_unit_test(test_what_is_not_read), cmocka_unit_test(test_no_model),
        cmocka_unit_test(test_numbers_in_lists), cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_old_file_stays),   cmocka_unit_test(test_two_gib),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
