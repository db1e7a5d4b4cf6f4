/*
 * test_amp_stats.c -- statistics of a training step: what is written, read back, refused and drawn
 */
#include "support/expect.h"
#include "support/scratch.h"
#include "support/small_training.h"

#include "base/arena.h"
#include "base/file_io.h"
#include "optim/training_graph.h"
#include "profiler/amp_stats.h"
#include "profiler/amp_stats_file.h"
#include "profiler/svg.h"

static td_status run_step(td_amp_stats *s, td_program *p, const td_amp_place *at)
{
    td_amp_stats_begin(s, p, at);
    return td_amp_stats_end(s, p, td_program_run(p));
}

/* `steps` steps, every second one observed, into the scratch folder */
static const char *write_stats(td_small_training *t, int steps, const char *name)
{
    td_amp_stats *s;
    const char *path = td_scratch_path(name);
    expect_ok(td_amp_stats_open(path, 2, "fp32", t->program, &s));
    for (int i = 0; i < steps; i++) {
        const td_amp_place at = { i + 1, i / 4, i % 4 + 1, (double)t->scale };
        expect_ok(run_step(s, t->program, &at));
    }
    expect_ok(td_amp_stats_close(s));
    return path;
}

static const td_stats_tensor *find(const td_stats_step *s, const char *name)
{
    for (int i = 0; i < s->n_tensors; i++)
        if (strcmp(s->tensors[i].name, name) == 0)
            return &s->tensors[i];
    fail_msg("no tensor '%s'", name);
    return NULL;
}

static const td_stats_tensor *gradient_of(const td_stats_step *s, const char *weight)
{
    for (int i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].of && strcmp(s->tensors[i].of, weight) == 0)
            return &s->tensors[i];
    fail_msg("no gradient of '%s'", weight);
    return NULL;
}

static void steps_are_observed_in_turn(void **state)
{
    (void)state;
    td_small_training t;
    td_stats_file f;
    td_small_training_begin(&t, "ref", 1, 1024);
    expect_ok(td_stats_read(write_stats(&t, 6, "turn.jsonl"), &f));
    assert_int_equal(f.n_steps, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(f.steps[i].step, 1 + 2 * i);
        assert_int_equal(f.steps[i].epoch, (2 * i) / 4);
        assert_int_equal(f.steps[i].iteration, (2 * i) % 4 + 1);
        assert_true(f.steps[i].loss_scale == 1024);
        assert_string_equal(f.steps[i].precision, "fp32");
        assert_false(f.steps[i].is_skipped);
        assert_int_equal(f.steps[i].n_tensors, f.steps[0].n_tensors);
    }
    td_stats_release(&f);
    td_small_training_end(&t);
}

/* what is in the file is what the program holds, counted here from a copy in plain order */
static void a_parameter_is_counted(const char *device, const char *name)
{
    td_small_training t;
    td_stats_file f;
    td_magnitudes m;
    float w[8 * 3 * 3 * 3];
    td_small_training_begin(&t, device, 1, 8);
    expect_ok(td_program_get(t.program, name, w));
    expect_ok(td_stats_read(write_stats(&t, 1, "one.jsonl"), &f));
    const td_stats_tensor *s = find(&f.steps[0], name);
    const td_type plain = td_type_of(TD_DT_F32, 1, (int64_t[]){ s->elements });
    expect_ok(td_magnitudes_count(&plain, w, &m));
    assert_string_equal(s->dtype, "f32");
    assert_string_equal(s->op, "param");
    assert_true((s->largest - m.largest) * (s->largest - m.largest) < 1e-18);
    assert_true(s->zero == (double)m.n_zero / (double)m.n);
    td_stats_release(&f);
    td_small_training_end(&t);
}

static void parameters_are_counted_before_the_step(void **state)
{
    (void)state;
    static const char *const devices[] = { "ref", "cpu" };
    for (int i = 0; i < 2; i++) { /* cpu: 3 channels in a layout of blocks */
        a_parameter_is_counted(devices[i], "conv1.weight");
        a_parameter_is_counted(devices[i], "fc.weight");
        a_parameter_is_counted(devices[i], "bn1.bias");
    }
}

static void kinds_are_told_apart(void **state)
{
    (void)state;
    static const char *const weights[] = { "conv1.weight", "bn1.weight", "bn1.bias", "fc.weight",
                                           "fc.bias" };
    for (int precision = 1; precision <= 3; precision++) { /* fp32, bf16, fp16 */
        td_small_training t;
        td_stats_file f;
        td_small_training_begin(&t, "cpu", (td_precision)precision, 8);
        expect_ok(td_stats_read(write_stats(&t, 1, "kinds.jsonl"), &f));
        const td_stats_step *s = &f.steps[0];
        assert_string_equal(find(s, "images")->kind, "input");
        assert_string_equal(find(s, TD_INPUT_SCALE)->kind, "input");
        assert_string_equal(find(s, "bn1.running_mean")->kind, "stat");
        assert_string_equal(find(s, "momentum.fc.weight")->kind, "momentum");
        for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
            assert_string_equal(find(s, weights[i])->kind, "weight");
            const td_stats_tensor *g = gradient_of(s, weights[i]);
            assert_string_equal(g->kind, "gradient");
            assert_int_equal(g->elements, find(s, weights[i])->elements);
            assert_true(g->n_bins > 0);
        }
        for (int i = 0; i < s->n_tensors; i++) {
            const td_stats_tensor *v = &s->tensors[i];
            if (strstr(v->op, "_grad"))
                assert_string_equal(v->kind, "gradient");
            assert_int_equal(v->bins != NULL, strcmp(v->kind, "gradient") == 0);
            if (strcmp(v->op, "conv2d") == 0 || strcmp(v->op, "linear") == 0)
                assert_string_equal(v->kind, "activation");
        }
        td_stats_release(&f);
        td_small_training_end(&t);
    }
}

/* a power of two as the loss scale moves gradients' exponents by as much, and nothing else */
static void the_loss_scale_moves_gradients(void **state)
{
    (void)state;
    td_small_training t;
    td_stats_file a, b;
    int n_moved = 0;
    td_small_training_begin(&t, "ref", 1, 1);
    expect_ok(td_stats_read(write_stats(&t, 1, "plain.jsonl"), &a));
    td_small_training_end(&t);
    td_small_training_begin(&t, "ref", 1, 1024);
    expect_ok(td_stats_read(write_stats(&t, 1, "scaled.jsonl"), &b));
    td_small_training_end(&t);
    assert_int_equal(a.steps[0].n_tensors, b.steps[0].n_tensors);
    for (int i = 0; i < a.steps[0].n_tensors; i++) {
        const td_stats_tensor *x = &a.steps[0].tensors[i], *y = &b.steps[0].tensors[i];
        assert_string_equal(x->name, y->name);
        if (x->bins) {
            assert_int_equal(x->first + 10, y->first);
            assert_int_equal(x->n_bins, y->n_bins);
            assert_memory_equal(x->bins, y->bins, (size_t)x->n_bins * sizeof *x->bins);
            n_moved++;
        } else if (strcmp(x->kind, "other") != 0 && strcmp(x->kind, "input") != 0) {
            assert_true(x->largest == y->largest);
        }
    }
    assert_true(n_moved >= 8);
    td_stats_gradients g;
    td_stats_sum_gradients(&b.steps[0], &g);
    assert_true(g.elements > 8 * 27 + 24 && g.non_zero > 0 && g.non_zero <= g.elements);
    td_stats_release(&a);
    td_stats_release(&b);
}

static void observing_changes_nothing(void **state)
{
    (void)state;
    td_small_training seen, plain;
    float x[8 * 27], y[8 * 27];
    td_small_training_begin(&seen, "cpu", 1, 8);
    td_small_training_begin(&plain, "cpu", 1, 8);
    write_stats(&seen, 5, "seen.jsonl");
    for (int i = 0; i < 5; i++)
        expect_ok(run_step(NULL, plain.program, &(td_amp_place){ .step = i + 1 }));
    expect_ok(td_program_get(seen.program, "conv1.weight", x));
    expect_ok(td_program_get(plain.program, "conv1.weight", y));
    assert_memory_equal(x, y, sizeof x);
    td_small_training_end(&seen);
    td_small_training_end(&plain);
}

static void a_run_that_fails_writes_no_line(void **state)
{
    (void)state;
    td_small_training t;
    td_amp_stats *s;
    char *text;
    size_t n;
    const char *path = td_scratch_path("failed.jsonl");
    td_small_training_begin(&t, "ref", 1, 1);
    expect_ok(td_amp_stats_open(path, 1, "fp32", t.program, &s));
    td_amp_stats_begin(s, t.program, &(td_amp_place){ 1, 0, 1, 1 });
    expect_ok(td_program_run(t.program));
    assert_int_equal(td_amp_stats_end(s, t.program, TD_EDEVICE), TD_EDEVICE);
    expect_ok(td_program_run(t.program)); /* is not observed */
    expect_ok(td_amp_stats_close(s));
    expect_ok(td_file_read(path, 1000, &text, &n));
    assert_int_equal(n, 0);
    td_free(text);
    td_small_training_end(&t);
}

/* --- files that are wrong --------------------------------------------------------------------- */

#define TENSOR_                                                                                    \
    "\"name\": \"a\", \"label\": \"l\", \"op\": \"o\", \"kind\": \"gradient\", \"dtype\": "        \
    "\"f32\", \"elements\": 4, \"largest\": 1, \"infinite\": 0, \"nan\": 0, "
#define HALF   "{\"overflow\": 0, \"below_subnormal\": 0, \"below_normal\": 0.5}"
#define TENSOR TENSOR_ "\"zero\": 0.25, \"fp16\": " HALF ", \"bf16\": " HALF
#define HEAD                                                                                       \
    "{\"step\": 1, \"epoch\": 0, \"iteration\": 1, \"precision\": \"fp16\", \"loss_scale\": 8, "   \
    "\"skipped\": false, \"tensors\": ["
#define LINE(tensor) HEAD "{" tensor "}]}\n"

static void expect_bad(const char *text, const char *message)
{
    td_stats_file f;
    const char *path = td_scratch_path("bad.jsonl");
    expect_ok(td_file_write(path, text, strlen(text)));
    expect_error(td_stats_read(path, &f), TD_EFORMAT, message);
    assert_int_equal(f.n_steps, 0);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    td_stats_file f;
    const char *good = LINE(TENSOR ", \"exponents\": {\"first\": -3, \"counts\": [1, 0, 2]}");
    const char *path = td_scratch_path("good.jsonl");
    expect_ok(td_file_write(path, good, strlen(good)));
    expect_ok(td_stats_read(path, &f));
    assert_int_equal(f.steps[0].tensors[0].n_bins, 3);
    td_stats_release(&f);

    expect_error(td_stats_read("absent.jsonl", &f), TD_ENOTFOUND, "absent.jsonl");
    expect_bad("", "bad.jsonl' is empty: no step was observed");
    expect_bad("{", "line 1 is truncated: its");
    expect_bad("[]\n", "line 1 is not a");
    expect_bad("nonsense\n", "line 1: ");
    expect_bad("{}\n", "1: 'step'");
    expect_bad(LINE(TENSOR) "\n", "line 2: ");
    expect_bad(LINE(TENSOR_), "line 1: ");
    expect_bad(LINE(TENSOR_ "\"x\": 0"), "line 1: tensors[0] has no 'zero'");
    expect_bad(LINE(TENSOR_ "\"zero\": 1.5"), "tensors[0].zero: found 1.5, wanted a share, 0 to 1");
    expect_bad(LINE(TENSOR_ "\"zero\": \"no\""), "tensors[0].zero: ");
    expect_bad(LINE(TENSOR_ "\"zero\": 0"), "tensors[0] has no 'fp16'");
    expect_bad(LINE(TENSOR_ "\"zero\": 0, \"fp16\": 3"), "tensors[0].fp16");
    expect_bad(HEAD "]}\n", "'tensors'");
    expect_bad(HEAD "7]}\n", "tensors[0]: found");
    expect_bad(LINE(TENSOR ", \"exponents\": {\"first\": -150, \"counts\": [1]}"), "found -150");
    expect_bad(LINE(TENSOR ", \"exponents\": {\"first\": 127, \"counts\": [1, 1]}"), "found 127");
    expect_bad(LINE(TENSOR ", \"exponents\": {\"first\": 1, \"counts\": [4, 1]}"), "at most");
    expect_bad(LINE(TENSOR ", \"exponents\": {\"first\": 1, \"counts\": [-1]}"), "found -1");
    expect_bad(LINE(TENSOR ", \"exponents\": {\"first\": 1, \"counts\": 3}"), "exponents.counts");
    expect_bad(LINE(TENSOR ", \"exponents\": 3"), "exponents.counts");
}

static void a_last_line_cut_off_is_left_out(void **state)
{
    (void)state;
    td_stats_file f;
    const char *cut = LINE(TENSOR) LINE(TENSOR) "{\"step\": 2",
               *path = td_scratch_path("cut.jsonl");
    expect_ok(td_file_write(path, cut, strlen(cut)));
    expect_ok(td_stats_read(path, &f));
    assert_int_equal(f.n_steps, 2);
    td_stats_release(&f);
}

static void a_path_that_cannot_be_written_is_an_error(void **state)
{
    (void)state;
    td_small_training t;
    td_amp_stats *s;
    td_small_training_begin(&t, "ref", 1, 1);
    expect_error(td_amp_stats_open("absent/folder/x", 1, "fp32", t.program, &s), TD_EIO, "absent");
    assert_null(s);
    expect_ok(td_amp_stats_open(NULL, 1, "fp32", t.program, &s));
    assert_null(s);
    expect_ok(td_amp_stats_close(s));
    expect_ok(td_amp_stats_open("/dev/full", 1, "fp32", t.program, &s));
    expect_error(run_step(s, t.program, &(td_amp_place){ 1, 0, 1, 1 }), TD_EIO, "/dev/full");
    if (td_amp_stats_close(s) != TD_OK)
        print_message("%s\n", td_error_message());
    td_small_training_end(&t);
}

/* --- drawing ---------------------------------------------------------------------------------- */

static void expect_part(const td_text *svg, const char *part)
{
    if (!strstr(td_text_get(svg), part))
        fail_msg("the drawing has no '%s'", part);
}

static void gradients_are_drawn(void **state)
{
    (void)state;
    td_small_training t;
    td_stats_file f;
    td_text svg = { 0 };
    td_small_training_begin(&t, "ref", 1, 1024);
    expect_ok(td_stats_read(write_stats(&t, 3, "drawn.jsonl"), &f));
    td_stats_draw(&f, &svg);
    expect_ok(td_text_status(&svg));
    assert_true(td_text_starts(td_text_get(&svg), "<?xml"));
    assert_true(td_text_ends(td_text_get(&svg), "</svg>\n"));
    expect_part(&svg, "Gradients of step 3 (epoch 0, fp32)");
    expect_part(&svg, "loss scale 1024; the unscaled one is 2^-10 times");
    expect_part(&svg, "step 1, x 1024");
    expect_part(&svg, "conv1.weight (conv2d_grad_w)");
    expect_part(&svg, ">2^-24<");
    expect_part(&svg, ">2^-14<");
    expect_part(&svg, ">2^16<");
    assert_null(strstr(td_text_get(&svg), "href"));
    assert_null(strstr(td_text_get(&svg), "nan"));
    assert_null(strstr(td_text_get(&svg), "inf\""));
    td_text_release(&svg);
    td_stats_release(&f);
    td_small_training_end(&t);
}

static void words_are_escaped(void **state)
{
    (void)state;
    td_text t = { 0 };
    td_svg_text(&t, 1, 2, &(td_svg_font){ .size = 3 },
                "a<b & \"c\" > d\x01\x1f\xef\xbf\xbe\xc3\xa9");
    assert_string_equal(td_text_get(&t),
                        "<text x=\"1\" y=\"2\" font-size=\"3\">a&lt;b &amp; &quot;c&quot; &gt; "
                        "d???\xc3\xa9</text>\n");
    td_text_release(&t);
    td_svg_text(&t, 1, 2, &(td_svg_font){ .size = 3, .anchor = "end", .rotation = -90 }, "\xff<");
    assert_string_equal(td_text_get(&t), "<text x=\"1\" y=\"2\" font-size=\"3\" "
                                         "text-anchor=\"end\" transform=\"rotate(-90 1 2)\">?"
                                         "</text>\n");
    td_text_release(&t);
}

/* --- memory ----------------------------------------------------------------------------------- */

static td_status write_and_read(td_small_training *t, const char *path)
{
    td_amp_stats *s;
    td_stats_file f;
    TD_TRY(td_amp_stats_open(path, 1, "fp32", t->program, &s));
    td_status st = run_step(s, t->program, &(td_amp_place){ 1, 0, 1, 8 });
    td_status closed = td_amp_stats_close(s);
    if (st == TD_OK)
        st = closed;
    if (st != TD_OK)
        return st;
    TD_TRY(td_stats_read(path, &f));
    td_text svg = { 0 };
    td_stats_draw(&f, &svg);
    st = td_text_status(&svg);
    td_text_release(&svg);
    td_stats_release(&f);
    return st;
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    td_small_training t;
    td_status st = TD_ENOMEM;
    td_small_training_begin(&t, "ref", 1, 8);
    const char *path = td_scratch_path("memory.jsonl");
    for (int64_t n = 1; st != TD_OK; n++) {
        const int64_t live = td_alloc_live();
        td_alloc_fail_at(n);
        st = write_and_read(&t, path);
        td_alloc_fail_at(0);
        assert_true(st == TD_OK || st == TD_ENOMEM);
        assert_int_equal(td_alloc_live(), live);
    }
    td_small_training_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_observed_in_turn),
        cmocka_unit_test(parameters_are_counted_before_the_step),
        cmocka_unit_test(kinds_are_told_apart),
        cmocka_unit_test(the_loss_scale_moves_gradients),
        cmocka_unit_test(observing_changes_nothing),
        cmocka_unit_test(a_run_that_fails_writes_no_line),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(a_last_line_cut_off_is_left_out),
        cmocka_unit_test(a_path_that_cannot_be_written_is_an_error),
        cmocka_unit_test(gradients_are_drawn),
        cmocka_unit_test(words_are_escaped),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
