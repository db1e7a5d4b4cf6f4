/*
 * test_inspect_memory.c -- the plan as a drawing: every buffer once, in its place, with its words
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/expect.h"
#include "support/full_disk.h"
#include "support/scratch.h"
#include "support/small_training.h"

#include "inspect/inspect_memory.h"
#include "runtime/program_view.h"
#include "tandem/amp.h"
#include "tandem/graph.h"
#include "tandem/inspect.h"
#include "tandem/program.h"

static const char weights[] = "#3b6fb6", activations[] = "#74b95c", gradients[] = "#ef8a3c",
                  weight_gradients[] = "#c9413f", prepared[] = "#a6c8ec";

static td_text drawing_of(const td_program *p, const char *what)
{
    td_text svg = { 0 };
    expect_ok(td_memory_draw(p, what, &svg));
    return svg;
}

static void expect_part(const td_text *svg, const char *part)
{
    if (!strstr(svg->data, part))
        fail_msg("no '%s' in\n%s", part, svg->data);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

typedef struct {
    double x, y, w, h;
    char fill[16];
} rectangle;

/* the next rectangle with words, and behind it */
static const char *next(const char *at, rectangle *r)
{
    while ((at = strstr(at, "<rect "))) {
        char *end;
        r->x = strtod(strstr(at, "x=\"") + 3, &end);
        r->y = strtod(strstr(at, "y=\"") + 3, &end);
        r->w = strtod(strstr(at, "width=\"") + 7, &end);
        r->h = strtod(strstr(at, "height=\"") + 8, &end);
        snprintf(r->fill, sizeof r->fill, "%.7s", strstr(at, "fill=\"") + 6);
        at = strchr(at, '>') + 1;
        if (strncmp(at, "<title>", 7) == 0)
            return at;
    }
    return NULL;
}

/* where rows end that rounding to six digits leaves apart or together */
static bool overlap(const rectangle *a, const rectangle *b)
{
    const double near = 0.02;
    return a->x + near < b->x + b->w && b->x + near < a->x + a->w && a->y + near < b->y + b->h &&
           b->y + near < a->y + a->h;
}

static void every_buffer_has_a_place_of_its_own(void **state)
{
    (void)state;
    enum { MOST = 200 };
    td_small_training t;
    rectangle all[MOST];
    int n = 0;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    td_text svg = drawing_of(t.program, "tiny");
    for (const char *at = svg.data; n < MOST && (at = next(at, &all[n])); n++) {
        assert_true(all[n].x >= 80 - 0.01 && all[n].x + all[n].w <= 1180.01);
        assert_true(all[n].y >= 128 - 0.01 && all[n].y + all[n].h <= 748.01);
        assert_true(all[n].w > 0 && all[n].h > 0);
        for (int k = 0; k < n; k++)
            assert_false(overlap(&all[k], &all[n]));
    }
    assert_int_equal(n, td_program_view_of(t.program).plan->n_buffers);
    assert_true(n > 20);
    td_text_release(&svg);
    td_small_training_end(&t);
}

static int count_filled(const td_text *svg, const char *fill)
{
    rectangle r;
    int n = 0;
    for (const char *at = svg->data; (at = next(at, &r));)
        n += strcmp(r.fill, fill) == 0;
    return n;
}

static void kinds_are_told_apart(void **state)
{
    (void)state;
    td_small_training t;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    td_text svg = drawing_of(t.program, "tiny");
    assert_int_equal(count_filled(&svg, weights), 5);
    assert_int_equal(count_filled(&svg, weight_gradients), 5);
    assert_true(count_filled(&svg, activations) >= 4);
    assert_true(count_filled(&svg, gradients) >= 3);
    assert_int_equal(count_filled(&svg, prepared), 0);
    expect_part(&svg, "<title>%conv1.weight f32[8,3,3,3]: weights, 0.000896 MB at ");
    expect_part(&svg, " MB, always</title>");
    expect_part(&svg, ": gradients of weights, ");
    expect_part(&svg, "to conv1/sgd (");
    expect_part(&svg, ">forward</text>");
    expect_part(&svg, ">backward, updates</text>");
    td_text_release(&svg);
    td_small_training_end(&t);
}

static void numbers_are_those_of_the_report(void **state)
{
    (void)state;
    td_small_training t;
    char part[128];
    td_small_training_begin(&t, "cpu", TD_PRECISION_FP32, 0);
    const td_memory_report m = td_program_memory(t.program);
    td_text svg = drawing_of(t.program, "a <b> & \"c\"");
    snprintf(part, sizeof part, ">most alive at once (black line): %.1f MB at ",
             (double)(m.param_bytes + m.peak_live_bytes) / 1e6);
    expect_part(&svg, part);
    snprintf(part, sizeof part, ">a &lt;b&gt; &amp; &quot;c&quot;: %.1f MB planned, %d buffers; ",
             (double)(m.param_bytes + m.activation_bytes) / 1e6,
             td_program_view_of(t.program).plan->n_buffers);
    expect_part(&svg, part);
    expect_part(&svg, ">address, MB</text>");
    expect_part(&svg, ">time: kernels in the order in which they run</text>");
    assert_null(strstr(svg.data, "not drawn"));
    assert_int_equal(count(svg.data, "<g "), count(svg.data, "</g>"));
    assert_int_equal(count(svg.data, "<title>"), count(svg.data, "</title>"));
    assert_int_equal(count(svg.data, "nan"), 0);
    assert_int_equal(strncmp(svg.data, "<?xml", 5), 0);
    assert_string_equal(svg.data + svg.len - 7, "</svg>\n");
    td_text_release(&svg);
    td_small_training_end(&t);
}

/* folded filters are made once, and lie beside the weights */
static void inference_has_no_gradients(void **state)
{
    (void)state;
    static const char text[] =
        "%images:f32[2,3,8,8] = input\n"
        "%conv1.weight:f32[8,3,3,3] = param {init=normal, scale=0.272}\n"
        "%1 = conv2d %images, %conv1.weight {pad=1}\n"
        "%bn1.weight:f32[8] = param {init=ones}\n"
        "%bn1.bias:f32[8] = param\n"
        "%bn1.running_mean:f32[8] = param {role=stat}\n"
        "%bn1.running_var:f32[8] = param {role=stat, init=ones}\n"
        "%2 = batch_norm_infer %1, %bn1.weight, %bn1.bias, %bn1.running_mean, %bn1.running_var\n"
        "%3 = relu %2\n"
        "output y = %3\n";
    td_graph *g;
    td_device *dev;
    td_program *p;
    const td_amp_opts amp = { .precision = TD_PRECISION_FP32 };
    expect_ok(td_graph_parse(text, "text", &g));
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .amp = &amp }, &p));
    td_text svg = drawing_of(p, "tiny");
    assert_true(count_filled(&svg, prepared) > 0);
    assert_int_equal(count_filled(&svg, gradients) + count_filled(&svg, weight_gradients), 0);
    assert_null(strstr(svg.data, ">forward<"));
    td_text_release(&svg);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
}

static void a_graph_may_hold_nothing(void **state)
{
    (void)state;
    static const char text[] = "%x:f32[2] = input\noutput y = %x\n";
    td_graph *g;
    td_device *dev;
    td_program *p;
    const td_amp_opts amp = { .precision = TD_PRECISION_FP32 };
    expect_ok(td_graph_parse(text, "text", &g));
    expect_ok(td_device_open("ref", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .amp = &amp }, &p));
    td_text svg = drawing_of(p, "nothing");
    assert_int_equal(count(svg.data, "nan") + count(svg.data, "inf"), 0);
    td_text_release(&svg);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
}

static void a_full_disk_is_told(void **state)
{
    (void)state;
    td_inspect_opts o;
    char *text;
    td_inspect_defaults(&o);
    o.model.arch = "resnet18";
    o.model.image_size = 32;
    o.device.name = "ref";
    o.svg = td_scratch_path("full.svg");
    td_atomic_set_calls(&td_test_full_disk);
    const td_status st = td_inspect("memory", &o, NULL, &text);
    td_atomic_set_calls(NULL);
    expect_error(st, TD_EIO, "No space left");
    assert_null(text);
    assert_int_equal(td_scratch_count("full.svg"), 0);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    td_small_training t;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    td_status st = TD_ENOMEM;
    int n = 0;
    for (; st == TD_ENOMEM; n++) {
        td_text svg = { 0 };
        td_alloc_fail_at(n + 1);
        st = td_memory_draw(t.program, "tiny", &svg);
        td_alloc_fail_at(0);
        td_text_release(&svg);
    }
    expect_ok(st);
    assert_true(n > 8);
    td_small_training_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_buffer_has_a_place_of_its_own),
        cmocka_unit_test(kinds_are_told_apart),
        cmocka_unit_test(numbers_are_those_of_the_report),
        cmocka_unit_test(inference_has_no_gradients),
        cmocka_unit_test(a_graph_may_hold_nothing),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(memory_may_run_out),
    };
    td_set_threads(1); /* nothing here is worth a barrier */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
