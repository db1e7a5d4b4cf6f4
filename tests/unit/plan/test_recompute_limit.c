/* ctest: timeout 900 */
/*
 * test_recompute_limit.c -- a step within a limit of memory: what is dropped, and the same bits
 */
#include "support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "base/text.h"
#include "optim/training_graph.h"
#include "pass/amp.h"
#include "plan/recompute_limit.h"
#include "support/graphs.h"
#include "tandem/program.h"

/* --- the graph -------------------------------------------------------------------------------- */

static char *within(const char *text, const size_t *scratch, int64_t goal, td_recomputed *report)
{
    td_graph *g = td_test_graph(text), *out;
    expect_ok(td_recompute_within(g, scratch, goal, &out, report));
    char *printed = td_test_print(out);
    td_graph_free(out);
    td_graph_free(g);
    return printed;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *s = text; (s = strstr(s, part)); s += strlen(part))
        n++;
    return n;
}

/* c is read by the norm and far behind, y by the convolution after it and far behind */
#define CHAIN                                                                                      \
    "%x:f32[2,8,8,8] = input\n%w:f32[8,8,3,3] = param\n%g:f32[8] = param\n%b:f32[8] = param\n"     \
    "%c = conv2d %x, %w {pad=1}\n%y, %m, %v, %k = batch_norm_relu %c, %g, %b {eps=0.001}\n"        \
    "%d = conv2d %y, %w {pad=1}\n"                                                                 \
    "%big = concat %d, %d, %d, %d, %d, %d, %d, %d\n%s = sum %big\n"
#define REST                                                                                       \
    "%t = add %y, %x\n%u = add %c, %x\n%tt = sum %t\n%uu = sum %u\noutput s = %s\n"                \
    "output tt = %tt\noutput uu = %uu\n"

static void what_crosses_the_peak_is_worked_out_again(void **state)
{
    td_recomputed r;
    (void)state;
    char *out = within(CHAIN REST, NULL, 0, &r);
    const char *peak = strstr(out, "concat");
    const char *c = strstr(peak, "conv2d %x, %w {pad=1}");
    assert_non_null(c);
    const char *y = strstr(c, "batch_norm_relu_infer %");
    assert_non_null(y);
    assert_non_null(strstr(y, ", %g, %b, %m, %v {eps=0.001}"));
    assert_int_equal(count(out, "conv2d %x"), 2);
    assert_int_equal(count(out, "batch_norm_relu_infer %c"), 0); /* of the second convolution */
    assert_null(strstr(y, "add %y"));
    assert_null(strstr(y, "add %c"));
    assert_int_equal(r.n_results, 2);
    assert_int_equal(r.macs, 2 * 8 * 8 * 8 * 8 * 9);
    td_text_free(out);
}

static void the_cheap_one_comes_first_and_no_more_than_needed(void **state)
{
    td_recomputed none, one;
    (void)state;
    char *out = within(CHAIN REST, NULL, INT64_MAX, &none);
    assert_int_equal(none.n_results, 0);
    assert_int_equal(none.macs, 0);
    td_text_free(out);
    out = within(CHAIN REST, NULL, none.alive_bytes - 1, &one);
    assert_int_equal(one.n_results, 1);
    assert_int_equal(one.macs, 0); /* the norm */
    assert_true(one.alive_bytes < none.alive_bytes);
    assert_int_equal(count(out, "batch_norm_relu_infer %c"), 1);
    td_text_free(out);
}

static void what_is_not_what_it_was_stays(void **state)
{
    td_recomputed r;
    (void)state;
    /* the filter is overwritten before the second use */
    char *out = within(CHAIN "%z:f32[8,8,3,3] = relu %w\nassign %w, %z\n" REST, NULL, 0, &r);
    assert_int_equal(count(out, "conv2d %x"), 1);
    assert_int_equal(count(out, "batch_norm_relu_infer %c"), 1);
    td_text_free(out);
    /* seen through a reshape; an output */
    out = within(CHAIN "%q = reshape %c {shape=2:512}\n%qs = sum %q\noutput qs = %qs\noutput y = "
                       "%y\n" REST,
                 NULL, 0, &r);
    assert_int_equal(r.n_results, 0);
    td_text_free(out);
}

static void a_block_goes_down_to_what_it_began_with(void **state)
{
    td_recomputed r;
    (void)state;
    char *out = within(
        "%x:f32[2,8,8,8] = input\n%w:f32[8,8,3,3] = param\n%g:f32[8] = param\n%b:f32[8] = param\n"
        "%c = conv2d %x, %w {pad=1}\n%d = conv2d %x, %w {pad=1, dilation=1}\n"
        "%n, %nm, %nv = batch_norm %d, %g, %b\n"
        "%y, %m, %v, %k = batch_norm_add_relu %c, %g, %b, %n\n"
        "%e = conv2d %y, %w {pad=1}\n%big = concat %e, %e, %e, %e, %e, %e, %e, %e\n"
        "%s = sum %big\n%t = add %y, %x\n"
        "%tt = sum %t\noutput s = %s\noutput tt = %tt\n",
        NULL, 0, &r);
    /* its operands are gone by then, the shortcut's norm too */
    assert_int_equal(count(out, "conv2d %x"), 4);
    assert_int_equal(count(out, "batch_norm_infer"), 1);
    assert_int_equal(count(out, "batch_norm_add_relu_infer"), 1);
    assert_int_equal(r.n_results, 4);
    td_text_free(out);
}

static void no_allocation_is_taken_for_granted(void **state)
{
    (void)state;
    td_graph *g = td_test_graph(CHAIN REST), *out = NULL;
    td_recomputed r;
    td_status st = TD_ENOMEM;
    for (int64_t i = 1; st == TD_ENOMEM; i++) {
        const int64_t live = td_alloc_live();
        td_alloc_fail_at(i);
        st = td_recompute_within(g, NULL, 0, &out, &r);
        td_alloc_fail_at(0);
        assert_true(i < 5000);
        if (st != TD_OK) {
            assert_null(out);
            assert_int_equal(td_alloc_live(), live);
        }
    }
    expect_ok(st);
    td_graph_free(out);
    td_graph_free(g);
}

/* --- training --------------------------------------------------------------------------------- */

enum { CLASSES = 10, CHANNELS = 16, BLOCKS = 5 };

static void add_norm(td_text *t, const char *name, int channels, const char *of, const char *to)
{
    static const char *const rows[] = { "weight", "bias", "running_mean", "running_var" };
    static const char *const attrs[] = { "init=ones", "", "role=stat", "role=stat, init=ones" };
    for (int i = 0; i < 4; i++)
        td_text_add(t, "%%%s.%s:f32[%d] = param {%s}\n", name, rows[i], channels, attrs[i]);
    td_text_add(t,
                "%%%s = batch_norm_infer %%%s, %%%s.weight, %%%s.bias, %%%s.running_mean, "
                "%%%s.running_var\n",
                to, of, name, name, name, name);
}

static void add_conv(td_text *t, const char *name, int from, int side, const char *of,
                     const char *attrs)
{
    td_text_add(t, "%%%s.weight:f32[%d,%d,%d,%d] = param {init=normal, scale=0.1}\n", name,
                CHANNELS, from, side, side);
    td_text_add(t, "%%%s.out = conv2d %%%s, %%%s.weight {%s}\n", name, of, name, attrs);
}

/* a stem and residual blocks, the third with a convolution in its shortcut */
static char *residual_network(int side)
{
    td_text t = { 0 };
    td_text_add(&t, "%%images:f32[1,3,%d,%d] = input\n", side, side);
    add_conv(&t, "stem", 3, 3, "images", "pad=1");
    add_norm(&t, "stem_bn", CHANNELS, "stem.out", "stem_n");
    td_text_add(&t, "%%r0 = relu %%stem_n\n");
    for (int i = 1; i <= BLOCKS; i++) {
        const bool is_down = i == 3;
        char in[16], a[16], an[16], ar[16], b[16], bn[16], bo[16], shortcut[16], name[24];
        snprintf(in, sizeof in, "r%d", i - 1);
        snprintf(a, sizeof a, "a%d", i);
        snprintf(an, sizeof an, "an%d", i);
        snprintf(ar, sizeof ar, "ar%d", i);
        snprintf(b, sizeof b, "b%d", i);
        snprintf(bn, sizeof bn, "bn%d", i);
        snprintf(bo, sizeof bo, "bo%d", i);
        snprintf(shortcut, sizeof shortcut, "%s", in);
        add_conv(&t, a, CHANNELS, 3, in, is_down ? "pad=1, stride=2" : "pad=1");
        snprintf(name, sizeof name, "%s.out", a);
        add_norm(&t, an, CHANNELS, name, ar);
        td_text_add(&t, "%%%sr = relu %%%s\n", ar, ar);
        snprintf(name, sizeof name, "%sr", ar);
        add_conv(&t, b, CHANNELS, 3, name, "pad=1");
        snprintf(name, sizeof name, "%s.out", b);
        add_norm(&t, bn, CHANNELS, name, bo);
        if (is_down) {
            add_conv(&t, "d", CHANNELS, 1, in, "stride=2");
            add_norm(&t, "dn", CHANNELS, "d.out", "do");
            snprintf(shortcut, sizeof shortcut, "do");
        }
        td_text_add(&t, "%%s%d = add %%%s, %%%s\n%%r%d = relu %%s%d\n", i, bo, shortcut, i, i);
    }
    td_text_add(&t,
                "%%p = global_avg_pool %%r%d\n%%fc.weight:f32[%d,%d] = param {init=uniform, "
                "scale=0.35}\n%%fc.bias:f32[%d] = param\n%%y = linear %%p, %%fc.weight, "
                "%%fc.bias\noutput logits = %%y\n",
                BLOCKS, CLASSES, CHANNELS, CLASSES);
    expect_ok(td_text_status(&t));
    char *text = strdup(td_text_get(&t));
    td_text_release(&t);
    assert_non_null(text);
    return text;
}

typedef struct {
    const char *device, *arch; /* arch NULL: residual_network */
    int precision, side, batch;
    int64_t limit;
} task;

/* what training leaves behind */
typedef struct {
    td_status st;
    td_memory_report memory;
    int64_t planned, least;
    float loss[2];
    size_t n_bytes;
    char *params;
} outcome;

static void keep_params(td_program *p, outcome *o)
{
    for (int i = 0; i < td_program_param_count(p); i++) {
        const td_type t = td_program_param_type(p, i);
        const size_t bytes = (size_t)td_type_count(&t) * sizeof(float);
        o->params = realloc(o->params, o->n_bytes + bytes);
        assert_non_null(o->params);
        expect_ok(td_program_get(p, td_program_param_name(p, i), o->params + o->n_bytes));
        o->n_bytes += bytes;
    }
}

static void run_twice(td_program *p, const task *t, outcome *o)
{
    const int n = t->batch * 3 * t->side * t->side;
    const float lr = 0.05f, scale = 128, inverse = 1.0f / 128;
    float *images = malloc((size_t)n * sizeof *images);
    int64_t *labels = malloc((size_t)t->batch * sizeof *labels);
    td_rng r = td_rng_make(5, TD_RNG_INIT, 0, 0);
    assert_true(images && labels);
    for (int i = 0; i < n; i++)
        images[i] = (float)td_rng_normal(&r);
    for (int i = 0; i < t->batch; i++)
        labels[i] = i % CLASSES;
    expect_ok(td_program_init(p, 3));
    expect_ok(td_program_bind(p, "images", images));
    expect_ok(td_program_bind(p, "labels", labels));
    expect_ok(td_program_bind(p, "lr", &lr));
    if (t->precision == TD_PRECISION_FP16) {
        expect_ok(td_program_bind(p, TD_INPUT_SCALE, &scale));
        expect_ok(td_program_bind(p, TD_INPUT_INVERSE, &inverse));
    }
    for (int i = 0; i < 2; i++) {
        expect_ok(td_program_run(p));
        o->loss[i] = *(const float *)td_program_output(p, "loss", NULL);
    }
    keep_params(p, o);
    free(images);
    free(labels);
}

static outcome train(const task *t)
{
    const td_step_opts sgd = { .momentum = 0.9, .is_scaled = t->precision == TD_PRECISION_FP16 };
    const td_amp_opts amp = { .precision = (td_precision)t->precision, .is_silent = true };
    outcome o = { 0 };
    td_model_opts model;
    td_device *dev;
    td_program *p;
    td_graph *g;
    char *text = t->arch ? NULL : residual_network(t->side);
    td_model_defaults(&model);
    model.arch = t->arch ? t->arch : model.arch;
    model.model_text = text;
    model.num_classes = CLASSES;
    model.image_size = t->side;
    expect_ok(td_training_graph(&model, t->batch, &sgd, &g));
    expect_ok(td_device_open(t->device, &dev));
    o.st = td_compile(
        g, dev,
        &(td_compile_opts){ .amp = &amp, .memory_limit = t->limit, .least_bytes = &o.least }, &p);
    if (o.st == TD_OK) {
        o.memory = td_program_memory(p);
        o.planned = o.memory.param_bytes + o.memory.activation_bytes;
        run_twice(p, t, &o);
    }
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    free(text);
    return o;
}

static void expect_same_numbers(const outcome *a, const outcome *b)
{
    expect_ok(a->st);
    expect_ok(b->st);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_int_equal(a->n_bytes, b->n_bytes);
    assert_memory_equal(a->params, b->params, a->n_bytes);
}

/* no limit, one that is far away, one half way to the tightest, that, and one byte less */
static void check_limits(task t, double most)
{
    t.limit = 0;
    const outcome none = train(&t);
    assert_int_equal(none.memory.n_recomputed, 0);

    t.limit = none.planned;
    const outcome wide = train(&t);
    expect_same_numbers(&wide, &none);
    assert_int_equal(wide.planned, none.planned);
    assert_int_equal(wide.memory.n_recomputed, 0);

    t.limit = 1;
    const outcome never = train(&t);
    assert_int_equal(never.st, TD_ENOMEM);
    assert_non_null(strstr(td_error_message(), "program needs at least"));
    assert_true(never.least > 0 && never.least < none.planned);

    t.limit = never.least;
    const outcome tight = train(&t);
    expect_same_numbers(&tight, &none);
    assert_true(tight.planned <= t.limit);
    assert_true((double)tight.memory.activation_bytes <
                most * (double)none.memory.activation_bytes);
    assert_true(tight.memory.n_recomputed > 0 && tight.memory.recomputed_macs > 0);
    assert_int_equal(tight.memory.unlimited_bytes, none.planned);

    t.limit = (never.least + none.planned) / 2;
    const outcome half_way = train(&t);
    expect_same_numbers(&half_way, &none);
    assert_true(half_way.planned <= t.limit);
    assert_true(half_way.memory.recomputed_macs <= tight.memory.recomputed_macs);

    free(none.params);
    free(wide.params);
    free(tight.params);
    free(half_way.params);
}

static void a_limit_changes_no_bit(void **state)
{
    (void)state;
    for (int precision = TD_PRECISION_FP32; precision <= TD_PRECISION_FP16; precision++)
        check_limits((task){ .device = "cpu", .precision = precision, .side = 16, .batch = 8 },
                     0.9);
}

static void nor_with_the_reference_kernels(void **state)
{
    (void)state;
    for (int precision = TD_PRECISION_FP32; precision <= TD_PRECISION_BF16; precision++)
        check_limits((task){ .device = "ref", .precision = precision, .side = 8, .batch = 4 },
                     0.95);
}

/* side 96: smaller images have, without AVX-512, filter gradients of oneDNN whose scratch exceeds
   all activations */
static void nor_of_a_resnet(void **state)
{
    (void)state;
    for (int precision = TD_PRECISION_FP32; precision <= TD_PRECISION_BF16; precision++)
        check_limits((task){ .device = "cpu",
                             .arch = "resnet18",
                             .precision = precision,
                             .side = 96,
                             .batch = 4 },
                     0.9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_crosses_the_peak_is_worked_out_again),
        cmocka_unit_test(the_cheap_one_comes_first_and_no_more_than_needed),
        cmocka_unit_test(what_is_not_what_it_was_stays),
        cmocka_unit_test(a_block_goes_down_to_what_it_began_with),
        cmocka_unit_test(no_allocation_is_taken_for_granted),
        cmocka_unit_test(a_limit_changes_no_bit),
        cmocka_unit_test(nor_with_the_reference_kernels),
        cmocka_unit_test(nor_of_a_resnet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
