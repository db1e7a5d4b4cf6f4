/*
 * test_parse.c -- graph text: what is read, every complaint with its line, round trips, no memory
 */
#include "support/allocations.h"
#include "support/expect.h"

#include <stdio.h>

#include "ir/graph.h"
#include "support/graphs.h"

static void expect_refused(const char *text, td_status st, const char *part)
{
    td_graph *g = (td_graph *)&g;
    expect_error(td_graph_parse(text, "net.td", &g), st, part);
    assert_null(g);
}

static void comments_blanks_and_line_ends_do_not_matter(void **state)
{
    (void)state;
    td_graph *g = td_test_graph("# a network\r\n"
                                "\r\n"
                                "  %x : f32[2,3]=input\t# fed\n"
                                "\t%y=relu%x\n"
                                "%z  =  scale  %y{ by = 2 }   # twice\n"
                                "output  out=%z");
    char *text = td_test_print(g);
    assert_string_equal(text, "%x:f32[2,3] = input\n"
                              "%y:f32[2,3] = relu %x\n"
                              "%z:f32[2,3] = scale %y {by=2}\n"
                              "output out = %z\n");
    td_text_free(text);
    td_graph_free(g);
}

static void an_empty_text_is_no_graph(void **state)
{
    (void)state;
    static const char *const texts[] = { "", "\n", "\n\n# nothing\n", "  \t\n#" };
    td_graph *g;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        expect_error(td_graph_parse(texts[i], "net.td", &g), TD_EFORMAT, "net.td: it is empty");
    td_graph_free(td_test_graph("# something\n%x:f32[] = input"));
}

static void complaints_name_the_source_and_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        td_status st;
        const char *part;
    } rows[] = {
        { "%y = rleu %x", TD_EFORMAT, "3: unknown op 'rleu'" },
        { "%y = relu %q", TD_EFORMAT, "value '%q'" },
        { "%y = relu x", TD_EFORMAT, "found 'x', wanted the end of the line" },
        { "%y = relu %x,", TD_EFORMAT, "the line ends, wanted an operand '%name'" },
        { "%y = relu %", TD_EFORMAT, "the line ends, wanted a name" },
        { "%y relu %x", TD_EFORMAT, "found 'relu %x', wanted '='" },
        { "%\"a = relu %x", TD_EFORMAT, "wanted a name that ends with '\"'" },
        { "%\"\" = relu %x", TD_EFORMAT, "wanted a name of letters, digits and" },
        { "%\"a b\" = relu %x", TD_EFORMAT, "wanted a name of letters, digits and" },
        { "%\"a{b\" = relu %x", TD_EFORMAT, "wanted a name of letters, digits and" },
        { "%a:b = relu %x", TD_EFORMAT, "wanted a type" },
        { "%y = relu %\"a:b\"", TD_EFORMAT, "undefined value '%a:b'" },
        { "output \"y\" = %x", TD_EFORMAT, "wanted the output's name" },
        { "% = relu %x", TD_EFORMAT, "found '= relu %x', wanted a name" },
        { "%y = ", TD_EFORMAT, "the line ends, wanted an op" },
        { "=", TD_EFORMAT, "found '=', wanted an op" },
        { "%y, = relu %x", TD_EFORMAT, "wanted a result '%name'" },
        { "%x = relu %x", TD_EFORMAT, "value '%x' is" },
        { "%y, %y = max_pool2d %p", TD_EFORMAT, "value '%y' is" },
        { "%a, %b, %c, %d, %e = relu %x", TD_EFORMAT, "more than 4 results" },
        { "%a, %b = relu %x", TD_EFORMAT, "relu has 1 results, 2 are named" },
        { "relu %x", TD_EFORMAT, "relu has 1 results, 0 are named" },
        { "%y:f32[2,3 = relu %x", TD_EFORMAT, "wanted a type like f32[8,3,32,32]" },
        { "%y:f32[2,4] = relu %x", TD_ESHAPE, "'%y' is f32[2,3]" },
        { "%y:f64[2,3] = relu %x", TD_ESHAPE, "'%y' is f32[2,3]" },
        { "%y = input", TD_EFORMAT, "input: wanted '%name:type = input'" },
        { "%y:f32[2] = param %x", TD_EFORMAT, "param: wanted '%name:type = param'" },
        { "%y:f32[0] = input", TD_ESHAPE, "dimension 0 of 'y' is 0" },
        { "%y = scale %x {by=2", TD_EFORMAT, "'}' at the end of the attributes" },
        { "%y = scale %x {by=2} {by=3}", TD_EFORMAT, "wanted the end of the line" },
        { "%y = scale %x {by}", TD_EFORMAT, "wanted name=value" },
        { "%y = scale %x {b=2}", TD_EFORMAT, "unknown name 'b'" },
        { "%y = relu %x {by=2}", TD_EFORMAT, "relu has no attributes" },
        { "%y = max_pool2d %p {kernel=99}", TD_EFORMAT, "kernel" },
        { "%y = add %x", TD_ESHAPE, "1 operands, wanted 2" },
        { "%y = concat %x,%x,%x,%x,%x,%x,%x,%x,%x,%x,%x,%x,%x,%x,%x,%x,%x", TD_EFORMAT,
          "more than 16 operands" },
        { "%y = reshape %x {shape=7}", TD_ESHAPE, "reshape: 6 elements do not make 7" },
        { "%y = reshape %x {shape=-6}", TD_ESHAPE, "' is not a" },
        { "%y = reshape %x {shape=6:}", TD_ESHAPE, "' is not a" },
        { "%y = reshape %x {shape=1:1:1:1:1:6}", TD_ESHAPE, "' is not a" },
        { "%y = constant {type=f33}", TD_ESHAPE, "constant: 'f33' is" },
        { "%y = constant {type=\"f32[0]\"}", TD_ESHAPE, "dimension 0 of the result would be 0" },
        { "%y = reorder %x {layout=abc}", TD_ESHAPE, "layout 'abc' does" },
        { "%y:f32[2,3]@ba = input\n%z = softmax %y", TD_ESHAPE, "0 has layout 'ba', wanted ''" },
        { "output y", TD_EFORMAT, "the line ends, wanted '='" },
        { "output = %x", TD_EFORMAT, "wanted the output's name" },
        { "output y = x", TD_EFORMAT, "wanted an operand" },
        { "output y = %x %x", TD_EFORMAT, "wanted the end of the line" },
        { "output y = %x\noutput y = %x", TD_EARG, "4: the output name 'y'" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        snprintf(text, sizeof text, "%%x:f32[2,3] = input\n%%p:f32[1,1,4,4] = input\n%s\n",
                 rows[i].line);
        expect_refused(text, rows[i].st, rows[i].part);
        assert_int_equal(strncmp(td_error_message(), "net.td", 6), 0);
    }
}

static void names_in_quotes_are_printed_so(void **state)
{
    (void)state;
    static const char text[] = "%\"onnx::Conv_1\":f32[2,3] = param\n"
                               "%\"a[0];(b)\":f32[2,3] = relu %\"onnx::Conv_1\"\n"
                               "%plain:f32[2,3] = relu %\"a[0];(b)\"\n"
                               "output y = %\"a[0];(b)\"\noutput z = %plain\n";
    td_graph *g;
    char *printed;
    expect_ok(td_graph_parse(text, "net.td", &g));
    assert_non_null(td_graph_find(g, "onnx::Conv_1"));
    expect_ok(td_graph_print(g, &printed));
    assert_string_equal(printed, text);
    td_text_free(printed);
    td_graph_free(g);
    expect_ok(td_graph_parse("%\"bare\":f32[1] = param\noutput y = %bare\n", "net.td", &g));
    td_graph_free(g);
}

static void long_names_are_refused(void **state)
{
    (void)state;
    char text[400] = "%";
    memset(text + 1, 'n', 255);
    strcpy(text + 256, ":f32[2] = input\n");
    td_graph_free(td_test_graph(text));
    memset(text + 1, 'n', 256);
    strcpy(text + 257, ":f32[2] = input\n");
    expect_refused(text, TD_ELIMIT, "256 bytes, wanted at most 255");
}

static void too_many_lines_are_refused(void **state)
{
    (void)state;
    static const char first[] = "%x:f32[] = input";
    const size_t n_first = sizeof first - 1, n = 1000001;
    char *text = td_alloc(n_first + n + 1, 1);
    assert_non_null(text);
    memcpy(text, first, n_first);
    memset(text + n_first, '\n', n);
    text[n_first + n - 1] = '\0';
    td_graph_free(td_test_graph(text));
    text[n_first + n - 1] = '#';
    text[n_first + n] = '\0';
    expect_refused(text, TD_ELIMIT, "more than 1000000 lines");
    td_free(text);
}

/* "%x:f32[2] = input" and n - 1 nodes that follow it */
static char *many_nodes(int n)
{
    td_text t = { 0 };
    char *out = NULL;
    td_text_add(&t, "%%n1:f32[2] = input\n");
    for (int i = 2; i <= n; i++)
        td_text_add(&t, "%%n%d = relu %%n%d\n", i, i - 1);
    expect_ok(td_text_take(&t, TD_OK, &out));
    return out;
}

static void too_many_nodes_are_refused(void **state)
{
    (void)state;
    char *text = many_nodes(20000);
    td_graph_free(td_test_graph(text));
    td_text_free(text);
    text = many_nodes(20001);
    expect_refused(text, TD_ELIMIT, "net.td:20001: a graph of more than 20000 nodes");
    td_text_free(text);
}

static void expect_round_trip(const char *text)
{
    td_graph *g = td_test_graph(text), *again;
    char *once = td_test_print(g), *twice;
    expect_ok(td_graph_parse(once, "printed", &again));
    twice = td_test_print(again);
    assert_string_equal(once, twice);
    td_text_free(once);
    td_text_free(twice);
    td_graph_free(g);
    td_graph_free(again);
}

static void what_is_printed_parses_back(void **state)
{
    (void)state;
    expect_round_trip(td_test_training);
    expect_round_trip(td_test_inference);
    expect_round_trip("%x:f32[2,20,4,4] = input\n"
                      "%y:f32[2,20,4,4]@aBcd16b = reorder %x {layout=aBcd16b}\n"
                      "%z = relu %y\n"
                      "%u = reorder %z\n"
                      "%c = constant {value=0.1, type=\"f64[2,3]\"}\n"
                      "%s = slice %u {start=3, size=4}\n"
                      "output s = %s\noutput c = %c\noutput x = %x\n");
}

static void layouts_are_taken_over(void **state)
{
    (void)state;
    td_graph *g = td_test_graph("%x:f32[2,20,4,4] = input\n"
                                "%y = reorder %x {layout=aBcd16b}\n"
                                "%z = relu %y\n");
    assert_string_equal(td_test_value(g, "y")->type.layout, "aBcd16b");
    assert_string_equal(td_test_value(g, "z")->type.layout, "aBcd16b");
    td_graph_free(g);
    expect_refused("%x:f32[2,20,4,4]@acdb = input\n%z:f32[2,20,4,4]@aBcd8b = relu %x\n", TD_ESHAPE,
                   "0 has layout 'aBcd8b', wanted 'acdb'");
}

static void the_graph_can_be_asked(void **state)
{
    (void)state;
    td_graph *g = td_test_graph(td_test_training);
    assert_int_equal(td_graph_param_count(g), 11);
    assert_string_equal(td_graph_param_name(g, 0), "conv.weight");
    assert_int_equal(td_graph_param_type(g, 0).dim[0], 16);
    assert_null(td_graph_param_name(g, 11));
    assert_null(td_graph_param_name(g, -1));
    assert_int_equal(td_graph_param_type(g, 11).rank, 0);
    /* 4 x 16 x 64 x (3 + 16) x 9 of the convolutions, 4 x 5 x 16 of the linear layer */
    assert_int_equal(td_graph_macs(g), 4 * 16 * 64 * 19 * 9 + 320);
    assert_null(td_graph_find(g, "nobody"));
    assert_null(td_graph_output_value(g, "nobody"));
    assert_ptr_equal(td_graph_output_value(g, "loss"), td_graph_find(g, "loss"));
    const td_node *conv = td_test_value(g, "c")->producer;
    assert_string_equal(td_node_label(conv), "conv2");
    assert_string_equal(td_node_label(td_test_value(g, "r")->producer), "r");
    td_text t = { 0 };
    td_node_print(conv, &t);
    assert_string_equal(td_text_get(&t), "%c:f32[4,16,8,8] = conv2d %r, %conv2.weight {pad=1}");
    td_text_release(&t);
    td_graph_free(g);
}

static void work_is_counted_without_overflow(void **state)
{
    (void)state;
    td_graph *g = td_test_graph("%x:f32[1,1048576,64,64] = input\n"
                                "%w:f32[65536,1048576,1,1] = param\n"
                                "%y = conv2d %x, %w\n"
                                "output y = %y\n");
    assert_true(td_graph_macs(g) > 0);
    td_graph_free(g);
}

static td_status parse_and_print(void)
{
    td_graph *g;
    char *text = NULL;
    td_status st = td_graph_parse(td_test_training, "text", &g);
    if (st == TD_OK)
        st = td_graph_print(g, &text);
    td_text_free(text);
    td_graph_free(g);
    return st;
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    assert_true(td_test_allocations(parse_and_print, 1000) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comments_blanks_and_line_ends_do_not_matter),
        cmocka_unit_test(an_empty_text_is_no_graph),
        cmocka_unit_test(complaints_name_the_source_and_the_line),
        cmocka_unit_test(names_in_quotes_are_printed_so),
        cmocka_unit_test(long_names_are_refused),
        cmocka_unit_test(too_many_lines_are_refused),
        cmocka_unit_test(too_many_nodes_are_refused),
        cmocka_unit_test(what_is_printed_parses_back),
        cmocka_unit_test(layouts_are_taken_over),
        cmocka_unit_test(the_graph_can_be_asked),
        cmocka_unit_test(work_is_counted_without_overflow),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
