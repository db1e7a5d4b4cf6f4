/*
 * test_copies.c -- half copies of weights: filled when the weight is set, kept by the update, in
 * every layout a convolution may want; and the pass that makes them changes no bit
 */
#include "support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "support/graphs.h"
#include "tandem/program.h"

typedef struct {
    const char *shape, *weight, *copy1, *copy2; /* layouts */
    const char *half;
    bool has_two;
} row;

static const row rows[] = {
    { "32,48,3,3", "ABcd16b16a", "ABcd8b16a2b", "ABcd8a16b2a", "bf16", true },
    { "32,64,1,1", "ABcd16b16a", "ABcd8b16a2b", "BAcd8a16b2a", "bf16", true },
    { "32,16,3,3", "ABcd16b16a", "ABcd8b16a2b", "", "bf16", false },
    { "64,16,3,3", "2gaBCde16c16b", "2gaBCde8c16b2c", "", "bf16", false },
    { "32,32,3,3", "ABcd16b16a", "ABcd16b16a", "", "f16", false },
    { "40,24", "", "", "", "bf16", false },
};

static const char *const updates[2] = {
    "sgd %w, %v, %g, %lr, %one",
    "rmsprop %w, %v, %g, %lr, %a, %one",
};

#define TEXT                                                                                       \
    "%%lr:f32[] = input\n%%g:f32[%s]%s%s = input\n"                                                \
    "%%w:f32[%s]%s%s = param {init=normal}\n%%v:f32[%s]%s%s = param {role=momentum}\n"             \
    "%%a:f32[%s]%s%s = param {role=momentum}\n"                                                    \
    "%%c1:%s[%s]%s%s = param {role=copy, of=w}\n%s"                                                \
    "%%one = constant {value=1}\n%%y1 = %s %%c1\n%s"                                               \
    "%s, %%one, %%c1%s {momentum=0.5, decay=0.01}\n"                                               \
    "output y1 = %%y1\n%s"

static const char *at(const char *layout)
{
    return *layout ? "@" : "";
}

/* one weight with one or two copies, which the graph shows as they were before the update */
static td_graph *graph_of(const row *r, const char *update)
{
    static char text[2048], second[256];
    snprintf(second, sizeof second, "%%c2:%s[%s]%s%s = param {role=copy, of=w}\n", r->half,
             r->shape, at(r->copy2), r->copy2);
    snprintf(text, sizeof text, TEXT, r->shape, at(r->weight), r->weight, r->shape, at(r->weight),
             r->weight, r->shape, at(r->weight), r->weight, r->shape, at(r->weight), r->weight,
             r->half, r->shape, at(r->copy1), r->copy1, r->has_two ? second : "", "reorder",
             r->has_two ? "%y2 = reorder %c2\n" : "", update, r->has_two ? ", %c2" : "",
             r->has_two ? "output y2 = %y2\n" : "");
    return td_test_graph(text);
}

static void expect_rounded(td_program *p, const char *name, const float *w, int64_t n, bool is_bf16)
{
    const uint16_t *y = td_program_output(p, name, NULL);
    assert_non_null(y);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(y[i], is_bf16 ? td_f32_to_bf16(w[i]) : td_f32_to_f16(w[i]));
}

static void every_layout_follows_the_weight(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2 * sizeof rows / sizeof *rows; k++) {
        const size_t i = k / 2;
        const bool is_bf16 = strcmp(rows[i].half, "bf16") == 0;
        td_device *dev;
        td_program *p;
        td_graph *g = graph_of(&rows[i], updates[k % 2]);
        float lr = 0.1f;
        expect_ok(td_device_open("cpu", &dev));
        expect_ok(td_compile(g, dev, NULL, &p));
        /* copies are nobody's business; the square is rmsprop's */
        assert_int_equal(td_program_param_count(p), 2 + (int)(k % 2));
        td_type t = td_program_param_type(p, 0);
        int64_t n = td_type_count(&t);
        float *w = calloc((size_t)n, sizeof *w), *gradient = calloc((size_t)n, sizeof *gradient);
        for (int64_t e = 0; e < n; e++)
            gradient[e] = (float)(e % 37) / 7 - 2;
        expect_ok(td_program_init(p, i));
        expect_ok(td_program_bind(p, "lr", &lr));
        expect_ok(td_program_bind(p, "g", gradient));
        for (int step = 0; step < 3; step++) {
            expect_ok(td_program_get(p, "w", w)); /* before the step: what the copies are of */
            expect_ok(td_program_run(p));
            expect_rounded(p, "y1", w, n, is_bf16);
            if (rows[i].has_two)
                expect_rounded(p, "y2", w, n, is_bf16);
        }
        for (int64_t e = 0; e < n; e++)
            w[e] = (float)e / 3 - 100;
        expect_ok(td_program_set(p, "w", w)); /* set from outside: the copies are filled again */
        expect_ok(td_program_run(p));
        expect_rounded(p, "y1", w, n, is_bf16);
        free(w);
        free(gradient);
        td_program_free(p);
        td_device_close(dev);
        td_graph_free(g);
    }
}

/* the step with copies kept by the update, and with casts in every step: the same bits */
static void the_pass_changes_no_bit(void **state)
{
    (void)state;
    static float images[4 * 3 * 8 * 8];
    static const int64_t labels[4] = { 3, 0, 4, 1 };
    float lr = 0.1f, loss[2][4];
    for (int i = 0; i < 4 * 3 * 8 * 8; i++)
        images[i] = (float)(i % 23) / 11 - 1;
    for (int precision = 2; precision <= 3; precision++) { /* bf16, fp16 */
        for (int skips = 0; skips < 2; skips++) {
            td_amp_opts amp = { .precision = (td_precision)precision };
            td_device *dev;
            td_program *p;
            td_graph *g = td_test_graph(td_test_training);
            expect_ok(td_device_open("cpu", &dev));
            expect_ok(td_compile(
                g, dev, &(td_compile_opts){ .amp = &amp, .skip = skips ? "copies" : NULL }, &p));
            expect_ok(td_program_init(p, 1));
            expect_ok(td_program_bind(p, "images", images));
            expect_ok(td_program_bind(p, "labels", labels));
            expect_ok(td_program_bind(p, "lr", &lr));
            for (int i = 0; i < 4; i++) {
                expect_ok(td_program_run(p));
                loss[skips][i] = *(const float *)td_program_output(p, "loss", NULL);
            }
            char *text;
            expect_ok(td_program_print(p, &text));
            assert_int_equal(strstr(text, "role=copy") != NULL, !skips);
            td_text_free(text);
            td_program_free(p);
            td_device_close(dev);
            td_graph_free(g);
        }
        assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
        assert_true(loss[0][3] < loss[0][0]);
    }
}

/* a cast that leaves the graph, or is read when the update was, is what the weight was before */
static void a_cast_read_elsewhere_stays(void **state)
{
    (void)state;
    static const char *const ends[] = { "output a = %c\n", "%d = relu %c\noutput a = %d\n" };
    for (int i = 0; i < 2; i++) {
        char text[512];
        float lr = 1, gradient[4] = { 1, 2, 3, 4 }, w[4] = { 10, 20, 30, 40 };
        td_device *dev;
        td_program *p;
        snprintf(text, sizeof text, "%s%s%s",
                 "%lr:f32[] = input\n%g:f32[4] = input\n%w:f32[4] = param\n"
                 "%v:f32[4] = param {role=momentum}\n%c = cast %w {to=bf16}\n%e = relu %c\n",
                 "sgd %w, %v, %g, %lr\noutput e = %e\n", ends[i]);
        td_graph *g = td_test_graph(text);
        expect_ok(td_device_open("cpu", &dev));
        expect_ok(td_compile(g, dev, NULL, &p));
        expect_ok(td_program_set(p, "w", w));
        expect_ok(td_program_bind(p, "lr", &lr));
        expect_ok(td_program_bind(p, "g", gradient));
        expect_ok(td_program_run(p));
        const uint16_t *a = td_program_output(p, "a", NULL);
        for (int k = 0; k < 4; k++)
            assert_int_equal(a[k], td_f32_to_bf16(w[k]));
        td_program_free(p);
        td_device_close(dev);
        td_graph_free(g);
    }
}

static void a_copy_of_nothing_is_refused(void **state)
{
    (void)state;
    td_device *dev;
    td_program *p;
    td_graph *g = td_test_graph("%x:f32[4] = input\n%c:bf16[4] = param {role=copy, of=w}\n"
                                "%y = relu %c\noutput y = %y\n");
    expect_ok(td_device_open("cpu", &dev));
    expect_error(td_compile(g, dev, NULL, &p), TD_ESHAPE, "'c' is not a copy of a parameter 'w'");
    td_device_close(dev);
    td_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_follows_the_weight),
        cmocka_unit_test(the_pass_changes_no_bit),
        cmocka_unit_test(a_cast_read_elsewhere_stays),
        cmocka_unit_test(a_copy_of_nothing_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
