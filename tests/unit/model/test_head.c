/*
 * test_head.c -- a graph's last layer for another number of classes
 */
#include "model/head.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "model/own_graph.h"
#include "support/expect.h"
#include "tandem/model.h"

#define IMAGES "%images:f32[2,3,8,8] = input\n"
#define LINEAR                                                                                     \
    IMAGES "%p = global_avg_pool %images\n"                                                        \
           "%head.weight:f32[10,3] = param {init=uniform, scale=0.5}\n"                            \
           "%head.bias:f32[10] = param\n"                                                          \
           "%y = linear %p, %head.weight, %head.bias\n"                                            \
           "output logits = %y\n"
#define CONV                                                                                       \
    IMAGES "%last:f32[10,3,1,1] = param {init=normal, scale=0.1}\n"                                \
           "%c = conv2d %images, %last\n"                                                          \
           "%r = relu %c\n"                                                                        \
           "%y = global_avg_pool %r\n"                                                             \
           "output logits = %y\n"
#define TWO                                                                                        \
    IMAGES "%p = global_avg_pool %images\n"                                                        \
           "%a:f32[10,3] = param\n"                                                                \
           "%b:f32[10,3] = param\n"                                                                \
           "%u = linear %p, %a\n"                                                                  \
           "%v = linear %p, %b\n"                                                                  \
           "%y = add %u, %v\n"                                                                     \
           "output logits = %y\n"
#define SHARED                                                                                     \
    IMAGES "%p = global_avg_pool %images\n"                                                        \
           "%a:f32[10,3] = param\n"                                                                \
           "%u = linear %p, %a\n"                                                                  \
           "%v = linear %p, %a\n"                                                                  \
           "output other = %u\n"                                                                   \
           "output logits = %v\n"

static void check_resized(const char *text, const char *weight, const char *wanted)
{
    td_graph *g, *other;
    td_head h;
    char *printed;
    const int64_t live = td_alloc_live();
    expect_ok(td_graph_parse(text, "net.td", &g));
    expect_ok(td_head_find(g, &h));
    assert_string_equal(h.weight->name, weight);
    expect_ok(td_head_resize(g, 4, &other));
    expect_ok(td_graph_verify(other));
    expect_ok(td_graph_print(other, &printed));
    assert_string_equal(printed, wanted);
    td_text_free(printed);
    td_graph_free(other);
    td_graph_free(g);
    assert_int_equal(td_alloc_live(), live);
}

static void the_last_layer_gets_other_rows(void **state)
{
    (void)state;
    check_resized(LINEAR, "head.weight",
                  IMAGES "%p:f32[2,3] = global_avg_pool %images\n"
                         "%head.weight:f32[4,3] = param {init=uniform, scale=0.5}\n"
                         "%head.bias:f32[4] = param\n"
                         "%y:f32[2,4] = linear %p, %head.weight, %head.bias\n"
                         "output logits = %y\n");
    check_resized(CONV, "last",
                  IMAGES "%last:f32[4,3,1,1] = param {init=normal, scale=0.1}\n"
                         "%c:f32[2,4,8,8] = conv2d %images, %last\n"
                         "%r:f32[2,4,8,8] = relu %c\n"
                         "%y:f32[2,4] = global_avg_pool %r\n"
                         "output logits = %y\n");
}

static void other_heads_stay(void **state)
{
    static const char *const texts[] = { TWO, SHARED };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        td_graph *g, *other;
        expect_ok(td_graph_parse(texts[i], "net.td", &g));
        expect_error(td_head_resize(g, 4, &other), TD_ESHAPE, "logits have 10 classes");
        assert_null(other);
        td_graph_free(g);
    }
}

static void num_classes_decides(void **state)
{
    td_model_opts o;
    char *text, weight[256], bias[256];
    (void)state;
    td_model_defaults(&o);
    o.model_text = LINEAR;
    o.num_classes = 4;
    expect_ok(td_model_resolve(&o));
    assert_int_equal(o.num_classes, 4);
    expect_ok(td_model_graph_text(&o, &text));
    assert_non_null(strstr(text, "%head.weight:f32[4,3]"));
    td_text_free(text);
    expect_ok(td_model_head(&o, weight, bias));
    assert_string_equal(weight, "head.weight");
    assert_string_equal(bias, "head.bias");
    o.num_classes = 0;
    expect_ok(td_model_resolve(&o));
    assert_int_equal(o.num_classes, 10);
    expect_ok(td_model_graph_text(&o, &text)); /* as it is written */
    assert_null(text);
    o.model_text = TWO;
    expect_ok(td_model_resolve(&o));
    expect_ok(td_model_head(&o, weight, bias));
    assert_string_equal(weight, "");
    o.num_classes = 4;
    expect_error(td_model_resolve(&o), TD_ESHAPE, "be changed to 4 classes: its");
    expect_error(td_model_graph_text(&o, &text), TD_ESHAPE, "logits have 10 classes");
    assert_null(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_layer_gets_other_rows),
        cmocka_unit_test(other_heads_stay),
        cmocka_unit_test(num_classes_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
