/*
 * test_trace.c -- a trace is JSON, its kernels lie in their steps, it stays small, it is whole
 */
#include <stdio.h>
#include <unistd.h>

#include "support/expect.h"
#include "support/full_disk.h"
#include "support/scratch.h"
#include "support/small_training.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/paths.h"
#include "profiler/trace.h"

static void steps(td_small_training *t, td_trace *trace, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        const int64_t begin_ns = td_now_ns();
        expect_ok(td_program_run(t->program));
        td_trace_step(trace, &(td_trace_place){ .step = i,
                                                .epoch = 2,
                                                .iteration = i,
                                                .begin_ns = begin_ns,
                                                .end_ns = td_now_ns(),
                                                .wait_ns = 1500,
                                                .decode_s = 0.002,
                                                .loss = 0.5 });
    }
}

static td_json *read_trace(const char *path)
{
    char *text;
    size_t n;
    td_json *doc;
    expect_ok(td_file_read(path, (size_t)64 << 20, &text, &n));
    expect_ok(td_json_parse(text, n, path, &doc));
    td_free(text);
    return doc;
}

static double number(const td_json *object, const char *key)
{
    double x;
    expect_ok(td_json_number(object, key, &x));
    return x;
}

static const char *text_of(const td_json *object, const char *key)
{
    const char *text;
    expect_ok(td_json_text(object, key, &text));
    return text;
}

/* of the complete events of a category; NULL: of all */
static int count_events(const td_json *doc, const char *category)
{
    const td_json *events = td_json_get(doc, "traceEvents");
    int n = 0;
    for (size_t i = 0; i < td_json_count(events); i++) {
        const td_json *e = td_json_at(events, i);
        n += strcmp(text_of(e, "ph"), "X") == 0 &&
             (!category || strcmp(text_of(e, "cat"), category) == 0);
    }
    return n;
}

static const td_json *find_event(const td_json *doc, const char *name)
{
    const td_json *events = td_json_get(doc, "traceEvents");
    for (size_t i = 0; i < td_json_count(events); i++)
        if (strcmp(text_of(td_json_at(events, i), "name"), name) == 0)
            return td_json_at(events, i);
    fail_msg("no event '%s'", name);
    return NULL;
}

static int kernels_of(const td_program *p)
{
    int n = 0;
    for (int i = 0; i < td_program_node_count(p); i++)
        n += *td_program_node(p, i).kernel != '\0';
    return n;
}

/* every kernel lies in the step before it in the file, behind the kernel before it */
static void expect_nested(const td_json *doc)
{
    static const double rounding = 1e-3; /* microseconds: times are written to the nanosecond */
    const td_json *events = td_json_get(doc, "traceEvents");
    double step_begin = 0, step_end = -1, last_end = -1;
    for (size_t i = 0; i < td_json_count(events); i++) {
        const td_json *e = td_json_at(events, i);
        if (strcmp(text_of(e, "ph"), "X") != 0)
            continue;
        const double begin = number(e, "ts"), end = begin + number(e, "dur");
        assert_true(number(e, "dur") >= 0);
        if (number(e, "tid") != 1)
            continue;
        if (strcmp(text_of(e, "cat"), "step") == 0) {
            assert_true(begin >= step_end - rounding);
            step_begin = last_end = begin;
            step_end = end;
            continue;
        }
        assert_true(begin >= step_begin - rounding && end <= step_end + rounding);
        assert_true(begin >= last_end - rounding);
        last_end = end;
    }
    assert_true(step_end > 0);
}

static void a_trace_has_every_kernel_of_every_step(void **state)
{
    (void)state;
    td_small_training t;
    td_trace *trace;
    const char *path = td_scratch_path("trace.json");
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_trace_open(path, "train tiny", t.program, &trace));
    steps(&t, trace, 0, 4);
    const int64_t begin_ns = td_now_ns();
    td_trace_span(trace, "validate", begin_ns);
    assert_false(td_path_exists(path)); /* before the end nothing is there */
    expect_ok(td_trace_close(trace, TD_OK));

    td_json *doc = read_trace(path);
    assert_int_equal(count_events(doc, "step"), 4);
    assert_int_equal(count_events(doc, "input"), 4);
    assert_int_equal(count_events(doc, "job"), 1);
    assert_int_equal(count_events(doc, NULL), 4 * kernels_of(t.program) + 4 + 4 + 1);
    expect_nested(doc);
    find_event(doc, "warm-up"); /* step 0 */
    const td_json *args = td_json_get(find_event(doc, "step 3"), "args");
    assert_true(number(args, "epoch") == 2 && number(args, "loss") == 0.5);
    const td_json *wait = find_event(doc, "wait for the batch");
    assert_true(number(wait, "dur") == 1.5 && number(wait, "tid") == 2);
    assert_true(number(td_json_get(wait, "args"), "workers_ms") == 2);
    args = td_json_get(find_event(doc, "conv1/conv2d"), "args");
    const td_node_report r = td_program_node(t.program, td_small_training_node(&t, "conv2d"));
    assert_string_equal(text_of(args, "op"), "conv2d");
    assert_string_equal(text_of(args, "kernel"), r.kernel);
    assert_string_equal(text_of(args, "impl"), r.impl);
    assert_string_equal(text_of(args, "shapes"), "f32[4,3,8,8], f32[8,3,3,3] -> f32[4,8,8,8]");
    assert_true(number(args, "macs") == (double)r.macs);
    assert_true(number(args, "bytes") == (double)(r.bytes_read + r.bytes_written));
    assert_true(number(args, "gflop_s") > 0);
    td_json_free(doc);
    td_small_training_end(&t);
}

static void only_the_last_steps_are_kept(void **state)
{
    (void)state;
    td_small_training t;
    td_trace *trace;
    char name[32];
    const char *path = td_scratch_path("long.json");
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_trace_open(path, "train tiny", t.program, &trace));
    const int room = td_trace_room(trace), n = 2 * room + 3;
    assert_int_equal(room, 20);
    td_trace_span(trace, "too old", td_now_ns());
    steps(&t, trace, 1, 1);
    const int64_t first = td_alloc_count();
    steps(&t, trace, 2, n - 1);
    assert_int_equal(td_alloc_count() - first, 0);
    for (int i = 0; i < 100; i++)
        td_trace_span(trace, "save", td_now_ns());
    expect_ok(td_trace_close(trace, TD_OK));
    td_json *doc = read_trace(path);
    assert_int_equal(count_events(doc, "step"), room);
    assert_int_equal(count_events(doc, "job"), 64);
    snprintf(name, sizeof name, "step %d", n - room + 1);
    find_event(doc, name);
    snprintf(name, sizeof name, "step %d", n);
    find_event(doc, name);
    expect_nested(doc);
    assert_true(number(td_json_get(doc, "otherData"), "steps") == n);
    assert_true(number(td_json_get(doc, "otherData"), "steps_kept") == room);
    td_json_free(doc);
    td_small_training_end(&t);
}

static void names_are_escaped(void **state)
{
    (void)state;
    static const char odd[] = "train a \"quoted\" \\ name\n\x01\xff";
    td_small_training t;
    td_trace *trace;
    const char *path = td_scratch_path("odd.json");
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_trace_open(path, odd, t.program, &trace));
    steps(&t, trace, 1, 1);
    td_trace_span(trace, "a \"job\"", td_now_ns());
    expect_ok(td_trace_close(trace, TD_OK));
    td_json *doc = read_trace(path);
    const char *run = text_of(td_json_get(doc, "otherData"), "run");
    assert_true(strncmp(run, odd, sizeof odd - 2) == 0); /* the last byte is no UTF-8 */
    find_event(doc, "a \"job\"");
    td_json_free(doc);
    td_small_training_end(&t);
}

static void look(void *ctx, const td_observation *o)
{
    (void)o;
    ++*(int *)ctx;
}

/* an observed step takes longer, but its kernels ran when they say */
static void an_observed_step_is_nested_too(void **state)
{
    (void)state;
    td_small_training t;
    td_trace *trace;
    int n = 0;
    const char *path = td_scratch_path("observed.json");
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_trace_open(path, "train tiny", t.program, &trace));
    td_program_observe(t.program, look, &n);
    steps(&t, trace, 1, 2);
    td_program_observe(t.program, NULL, NULL);
    expect_ok(td_trace_close(trace, TD_OK));
    td_json *doc = read_trace(path);
    assert_true(n > 0);
    assert_int_equal(count_events(doc, NULL), 2 * (kernels_of(t.program) + 2));
    expect_nested(doc);
    td_json_free(doc);
    td_small_training_end(&t);
}

static void a_run_that_fails_leaves_its_steps(void **state)
{
    (void)state;
    td_small_training t;
    td_trace *trace;
    const char *path = td_scratch_path("failed.json"), *none = td_scratch_path("none.json");
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_trace_open(path, "train tiny", t.program, &trace));
    steps(&t, trace, 1, 2);
    expect_error(td_trace_close(trace, td_error(TD_ENUMERIC, "the loss is infinite")), TD_ENUMERIC,
                 "the loss is infinite");
    td_json *doc = read_trace(path);
    assert_int_equal(count_events(doc, "step"), 2);
    td_json_free(doc);

    expect_ok(td_trace_open(none, "train tiny", t.program, &trace));
    expect_error(td_trace_close(trace, td_error(TD_ENOTFOUND, "no images")), TD_ENOTFOUND,
                 "no images");
    assert_false(td_path_exists(none));

    expect_ok(td_trace_open(none, "train tiny", t.program, &trace)); /* nothing was left to do */
    expect_ok(td_trace_close(trace, TD_OK));
    doc = read_trace(none);
    assert_int_equal(count_events(doc, NULL), 0);
    td_json_free(doc);
    td_small_training_end(&t);
}

static void without_a_path_nothing_happens(void **state)
{
    (void)state;
    td_small_training t;
    td_trace *trace;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_trace_open(NULL, "train tiny", t.program, &trace));
    assert_null(trace);
    steps(&t, trace, 1, 1);
    td_trace_span(trace, "save", 0);
    assert_true(td_program_span(t.program, td_small_training_node(&t, "conv2d")).end_ns == 0);
    expect_ok(td_trace_close(trace, TD_OK));
    td_small_training_end(&t);
}

static void bad_paths_are_found_at_once(void **state)
{
    (void)state;
    td_small_training t;
    td_trace *trace;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_error(td_trace_open(td_scratch_path("no/such/t.json"), "x", t.program, &trace), TD_EIO,
                 "no/such");
    assert_null(trace);
    expect_error(td_trace_open(td_scratch_folder(), "x", t.program, &trace), TD_EIO,
                 td_scratch_folder());
    expect_error(td_trace_open("", "x", t.program, &trace), TD_EIO, "''");
    td_small_training_end(&t);
}

static void a_full_disk_is_told(void **state)
{
    (void)state;
    td_small_training t;
    td_trace *trace;
    const char *path = td_scratch_path("full.json");
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_trace_open(path, "train tiny", t.program, &trace));
    steps(&t, trace, 1, 2);
    td_atomic_set_calls(&td_test_full_disk);
    const td_status st = td_trace_close(trace, TD_OK);
    td_atomic_set_calls(NULL);
    expect_error(st, TD_EIO, "No space left");
    assert_false(td_path_exists(path));
    assert_int_equal(td_scratch_count("full.json"), 0);
    td_small_training_end(&t);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    td_small_training t;
    td_trace *trace;
    const char *path = td_scratch_path("memory.json");
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    td_status st = TD_ENOMEM;
    for (int n = 0; st == TD_ENOMEM; n++) {
        td_alloc_fail_at(n + 1);
        st = td_trace_open(path, "train tiny", t.program, &trace);
        td_alloc_fail_at(0);
        assert_true((st == TD_OK) == (trace != NULL));
    }
    expect_ok(st);
    expect_ok(td_trace_close(trace, TD_OK));
    st = TD_ENOMEM;
    for (int n = 0; st == TD_ENOMEM; n++) {
        expect_ok(td_trace_open(path, "train tiny", t.program, &trace));
        steps(&t, trace, 1, 1);
        td_alloc_fail_at(n + 1);
        st = td_trace_close(trace, TD_OK);
        td_alloc_fail_at(0);
    }
    expect_ok(st);
    td_json_free(read_trace(path));
    td_small_training_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_has_every_kernel_of_every_step),
        cmocka_unit_test(only_the_last_steps_are_kept),
        cmocka_unit_test(names_are_escaped),
        cmocka_unit_test(an_observed_step_is_nested_too),
        cmocka_unit_test(a_run_that_fails_leaves_its_steps),
        cmocka_unit_test(without_a_path_nothing_happens),
        cmocka_unit_test(bad_paths_are_found_at_once),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(memory_may_run_out),
    };
    td_set_threads(1); /* nothing here is worth a barrier */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
