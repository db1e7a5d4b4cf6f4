/*
 * test_recompute.c -- values worked out again behind the peak: which, where, and to the same bits
 */
#include "support/expect.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "optim/training_graph.h"
#include "pass/pass.h"
#include "support/graphs.h"
#include "tandem/program.h"

/* the text of `text` after the pass */
static char *recomputed(const char *text)
{
    const td_pass *pass = NULL;
    for (int i = 0; td_pass_at(i); i++)
        if (strcmp(td_pass_at(i)->name, "recompute") == 0)
            pass = td_pass_at(i);
    assert_non_null(pass);
    td_graph *g = td_test_graph(text), *out;
    expect_ok(td_pass_run(pass, g, &td_test_target, NULL, &out));
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

static void expect_again(const char *text, int n)
{
    char *out = recomputed(text);
    if (count(out, " = batch_norm_relu_infer ") != n)
        fail_msg("wanted %d:\n%s", n, out);
    td_text_free(out);
}

/* y is read on both sides of the peak (%big), x behind it too */
#define BEFORE                                                                                     \
    "%x:f32[2,8,8,8] = input\n%g:f32[8] = param\n%b:f32[8] = param\n"                              \
    "%c = relu %x\n%y, %m, %v, %k = batch_norm_relu %c, %g, %b {eps=0.001}\n"
#define PEAK "%big = concat %y, %y, %y, %y\n%s = sum %big\n"

static void what_the_peak_stands_between_is_worked_out_again(void **state)
{
    (void)state;
    char *out = recomputed(BEFORE PEAK "%r = relu %y\n%t = add %y, %c\noutput s = %s\n"
                                       "output r = %r\noutput t = %t\n");
    const char *again = strstr(out, "batch_norm_relu_infer %c, %g, %b, %m, %v {eps=0.001}");
    assert_non_null(again);
    assert_true(strstr(out, "concat %y, %y, %y, %y") < again);
    assert_true(again < strstr(out, "%r:f32[2,8,8,8] = relu %"));
    assert_null(strstr(out, "relu %y\n"));
    assert_null(strstr(out, "add %y"));
    assert_int_equal(count(out, "batch_norm_relu_infer"), 1); /* once for both readers */
    td_text_free(out);
}

static void the_rest_is_kept(void **state)
{
    (void)state;
    /* nobody reads it behind the peak */
    expect_again(BEFORE PEAK "%t = relu %c\noutput s = %s\noutput t = %t\n", 0);
    /* its operand would have to be kept for it */
    expect_again(BEFORE PEAK "%t = relu %y\noutput s = %s\noutput t = %t\n", 0);
    /* it leaves the graph */
    expect_again(BEFORE PEAK "%t = add %y, %c\noutput s = %s\noutput t = %t\noutput y = %y\n", 0);
    /* a reshape holds on to its memory */
    expect_again(BEFORE PEAK "%q = reshape %y {shape=2:512}\n%t = relu %q\n%u = relu %c\n"
                             "output s = %s\noutput t = %t\noutput u = %u\n",
                 0);
    /* gamma is not what it was */
    expect_again(BEFORE PEAK "%d = sum %c\n%w:f32[8] = relu %m\nassign %g, %w\n"
                             "%t = add %y, %c\noutput s = %s\noutput t = %t\noutput d = %d\n",
                 0);
    /* and with all that not so */
    expect_again(BEFORE PEAK "%t = add %y, %c\noutput s = %s\noutput t = %t\n", 1);
}

typedef struct {
    float loss[2];
    int64_t bytes;
    bool has_again;
} outcome;

/* Side 128: the last images are 4 x 4.  For images of 2 x 2 oneDNN has, without AVX-512, a filter
   gradient whose scratch is 38 MB per thread, more than all activations. */
static outcome train(int precision, const char *skip)
{
    enum { BATCH = 4, SIDE = 128, FLOATS = BATCH * 3 * SIDE * SIDE };
    outcome o = { 0 };
    td_model_opts model;
    td_device *dev;
    td_program *p;
    td_graph *g;
    const td_step_opts sgd = { .momentum = 0.9 };
    const td_amp_opts amp = { .precision = (td_precision)precision, .is_silent = true };
    float *images = malloc(FLOATS * sizeof *images), lr = 0.05f;
    int64_t labels[BATCH];
    td_rng r = td_rng_make(5, TD_RNG_INIT, 0, 0);
    assert_non_null(images);
    for (int i = 0; i < FLOATS; i++)
        images[i] = (float)td_rng_normal(&r);
    for (int i = 0; i < BATCH; i++)
        labels[i] = i % 10;
    td_model_defaults(&model);
    model.arch = "resnet18";
    model.num_classes = 10;
    model.image_size = SIDE;
    expect_ok(td_training_graph(&model, BATCH, &sgd, &g));
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .amp = &amp, .skip = skip }, &p));
    expect_ok(td_program_init(p, 3));
    expect_ok(td_program_bind(p, "images", images));
    expect_ok(td_program_bind(p, "labels", labels));
    expect_ok(td_program_bind(p, "lr", &lr));
    for (int i = 0; i < 2; i++) {
        expect_ok(td_program_run(p));
        o.loss[i] = *(const float *)td_program_output(p, "loss", NULL);
    }
    char *text;
    expect_ok(td_program_print(p, &text));
    o.has_again = strstr(text, "batch_norm_relu_infer") != NULL;
    o.bytes = td_program_memory(p).activation_bytes;
    td_text_free(text);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    free(images);
    return o;
}

static void a_training_needs_less_memory_and_changes_no_bit(void **state)
{
    (void)state;
    for (int precision = 1; precision <= 2; precision++) { /* fp32, bf16 */
        const outcome with = train(precision, NULL), without = train(precision, "recompute");
        assert_true(with.has_again);
        assert_false(without.has_again);
        assert_memory_equal(with.loss, without.loss, sizeof with.loss);
        assert_true((double)with.bytes < 0.97 * (double)without.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_peak_stands_between_is_worked_out_again),
        cmocka_unit_test(the_rest_is_kept),
        cmocka_unit_test(a_training_needs_less_memory_and_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
