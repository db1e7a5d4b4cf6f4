/*
 * test_run_log.c -- reports read back, and the page and the tables made of them
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

#include "base/file_io.h"
#include "report/run_chart.h"
#include "report/run_classes.h"
#include "report/run_log.h"
#include "report/run_page.h"
#include "report/run_table.h"

#define TIME(t)                                                                                    \
    "DLLL {\"timestamp\": \"" t                                                                    \
    "\", \"datetime\": \"2020-01-02 03:04:05.5\", \"elapsedtime\": \"0\", "
#define LOG(t, step, data) TIME(t) "\"type\": \"LOG\", \"step\": " step ", \"data\": {" data "}}\n"

static const char *write_report(const char *name, const char *text)
{
    const char *path = td_scratch_path(name);
    expect_ok(td_file_write(path, text, strlen(text)));
    return path;
}

static void expect_point(const td_run_series *s, size_t i, int64_t epoch, int64_t iteration,
                         double value)
{
    assert_non_null(s);
    assert_true(i < s->n);
    assert_int_equal(s->points[i].epoch, epoch);
    assert_int_equal(s->points[i].iteration, iteration);
    assert_float_equal(s->points[i].value, value, 1e-12);
}

static void a_resumed_run_counts_once(void **state)
{
    td_run_log run;
    const char *path = write_report(
        "resumed.json",
        TIME("1") "\"type\": \"METADATA\", \"metric\": \"train.loss\", \"metadata\": {}}\n" LOG(
            "10", "\"PARAMETER\"",
            "\"lr\": 0.1, \"arch\": \"resnet18\", \"nesterov\": true, \"x\": null")
            LOG("11", "[0, 10]", "\"train.loss\": 5") LOG("12", "[0, 20]", "\"train.loss\": 4")
                LOG("12.5", "[0, 20, 3]", "\"val.top1\": 1") LOG(
                    "13", "[0]",
                    "\"train.loss\": 4.5, \"val.top1\": 10, \"val.top7\": 50, \"val.loss\": null")
                    LOG("14", "[1, 10]", "\"train.loss\": 3")
                        LOG("15", "[1, 20]", "\"train.loss\": 2.9")
                            LOG("100", "\"PARAMETER\"", "\"lr\": 0.2")
                                LOG("101", "[1, 10]", "\"train.loss\": 2.5")
                                    LOG("102", "[1]", "\"train.loss\": 2.4")
                                        LOG("103", "[]", "\"train.loss\": 2.4"));
    (void)state;
    expect_ok(td_run_log_read(path, &run));
    const td_run_series *s = td_run_log_series(&run, TD_RUN_ITERATIONS, "train.loss");
    assert_int_equal(s->n, 3);
    expect_point(s, 1, 0, 20, 4);
    expect_point(s, 2, 1, 10, 2.5); /* the later one, and nothing after it */
    s = td_run_log_series(&run, TD_RUN_EPOCHS, "train.loss");
    expect_point(s, 1, 1, 0, 2.4);
    expect_point(td_run_log_series(&run, TD_RUN_END, "train.loss"), 0, 0, 0, 2.4);
    assert_null(td_run_log_series(&run, TD_RUN_EPOCHS, "val.loss"));
    assert_string_equal(td_run_log_topk(&run, "val."), "val.top7");
    assert_null(td_run_log_topk(&run, "val_ema."));
    assert_string_equal(td_run_log_setting(&run, "lr"), "0.2");
    assert_string_equal(td_run_log_setting(&run, "nesterov"), "true");
    assert_string_equal(td_run_log_setting(&run, "x"), "");
    assert_null(td_run_log_setting(&run, "y"));
    assert_int_equal(run.epoch_batches, 20);
    assert_float_equal(run.seconds, 5 + 3, 1e-9);
    assert_string_equal(run.began, "2020-01-02 03:04:05");
    assert_false(run.is_cut);
    td_run_log_release(&run);
}

#define GOOD LOG("1", "[0]", "\"train.loss\": 1")

static void bad_reports_are_told(void **state)
{
    static const struct {
        const char *text, *message;
        td_status st;
    } cases[] = {
        { "", "is empty", TD_EFORMAT },
        { "\n", "contains no metrics: the", TD_EFORMAT },
        { "hello\n", "line 1: found 'hello', wanted a record", TD_EFORMAT },
        { "DLLL {\"type\"", "line 1", TD_EFORMAT },
        { GOOD "DLLL {\"type\"\n" GOOD, "line 2", TD_EFORMAT },
        { GOOD "DLLL {}\n", "line 2: the record has no type", TD_EFORMAT },
        { GOOD "DLLL []\n", "line 2: found", TD_EFORMAT },
        { "DLLL {\"type\": \"LOG\"}\n", "line 1: the record has no step and data", TD_EFORMAT },
        { "DLLL {\"type\": \"LOG\", \"step\": [-1], \"data\": {\"a\": 1}}\n", "list of counts",
          TD_EFORMAT },
        { "DLLL {\"type\": \"LOG\", \"step\": [1e300], \"data\": {\"a\": 1}}\n", "list of counts",
          TD_EFORMAT },
        { "DLLL {\"type\": \"LOG\", \"step\": [\"x\"], \"data\": {\"a\": 1}}\n", "list of counts",
          TD_EFORMAT },
        { LOG("1", "\"PARAMETER\"", "\"a\": 1"), "contains no metrics: the", TD_EFORMAT },
        { LOG("1", "[0]", "\"train.loss\": null"), "contains no metrics: the", TD_EFORMAT },
    };
    td_run_log run;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = write_report("bad.json", cases[i].text);
        expect_error(td_run_log_read(path, &run), cases[i].st, cases[i].message);
        td_run_log_release(&run);
    }
    expect_error(td_run_log_read(td_scratch_path("none.json"), &run), TD_ENOTFOUND, "none.json");
    td_run_log_release(&run);
    expect_error(td_run_log_read(td_scratch_folder(), &run), TD_ENOTFOUND,
                 "has no experiment_raport.json");
    td_run_log_release(&run);
}

static void a_cut_last_line_is_left_out(void **state)
{
    td_run_log run;
    (void)state;
    expect_ok(td_run_log_read(write_report("cut.json", GOOD "DLLL {\"timestamp\": \"17"), &run));
    assert_true(run.is_cut);
    td_run_log_release(&run);
    expect_ok(td_run_log_read(write_report("whole.json", GOOD "DLLL " /* nothing yet */), &run));
    td_run_log_release(&run);
    /* without a line end, but whole: it counts */
    expect_ok(td_run_log_read(
        write_report("end.json",
                     GOOD "DLLL {\"type\": \"LOG\", \"step\": [1], \"data\": {\"train.loss\": 2}}"),
        &run));
    assert_false(run.is_cut);
    assert_int_equal(td_run_log_series(&run, TD_RUN_EPOCHS, "train.loss")->n, 2);
    td_run_log_release(&run);
}

/* --- pages ------------------------------------------------------------------------------------ */

/* every element is closed, in order; void elements apart */
static void expect_balanced(const char *html)
{
    static const char *const voids[] = { "meta", "!DOCTYPE", "br", NULL };
    char open[64][16];
    int depth = 0;
    for (const char *p = strchr(html, '<'); p; p = strchr(p, '<')) {
        char name[16];
        size_t n = 0;
        const bool closes = p[1] == '/';
        const char *q = p + 1 + closes;
        while (n + 1 < sizeof name && (isalnum((unsigned char)q[n]) || q[n] == '!'))
            n++;
        memcpy(name, q, n);
        name[n] = '\0';
        assert_true(n > 0);
        const char *end = strchr(p, '>');
        assert_non_null(end);
        bool is_void = end[-1] == '/';
        for (int i = 0; voids[i]; i++)
            is_void |= strcmp(voids[i], name) == 0;
        if (closes) {
            assert_true(depth > 0);
            assert_string_equal(open[--depth], name);
        } else if (!is_void) {
            assert_true(depth < 64);
            memcpy(open[depth++], name, sizeof name);
        }
        p = end;
    }
    assert_int_equal(depth, 0);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p += strlen(part))
        n++;
    return n;
}

#define HOSTILE "<script>alert('1')</script>&\\\"\\u0007"

static const char *const sample =
    LOG("1", "\"PARAMETER\"", "\"arch\": \"" HOSTILE "\", \"lr\": 0.1, \"batch_size\": 8")
        LOG("1", "\"PARAMETER\"", "\"run.cpu\": \"a cpu\", \"run.epoch_batches\": 20")
            LOG("2", "[0, 10]", "\"train.loss\": 2, \"train.lr\": 0.1, \"train.total_ips\": 50")
                LOG("2", "[0, 20]", "\"train.loss\": 1, \"train.lr\": 0.1, \"train.total_ips\": 60")
                    LOG("3", "[0]",
                        "\"train.loss\": 1.5, \"val.top1\": 10, \"val.top5\": 50, \"val.loss\": "
                        "300, \"train.grad_scale\": 8")
                        LOG("4", "[1]",
                            "\"train.loss\": 1.2, \"val.top1\": 30, \"val.top5\": 70, "
                            "\"val.loss\": 2, \"train.grad_scale\": 8");

/* which of two runs is marked in the row of this name; -1: neither */
static int best_of(const td_run_log *runs, const char *name)
{
    for (int row = 0; row < td_run_table_rows(); row++) {
        if (strcmp(td_run_table_name(row), name) != 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (td_run_table_is_best(runs, 2, row, i))
                return i;
    }
    return -1;
}

/* a smaller batch takes less time, which is no better */
static void times_of_unlike_batches_have_no_best(void **state)
{
    (void)state;
    for (int is_alike = 0; is_alike < 2; is_alike++) {
        td_run_log runs[2];
        expect_ok(
            td_run_log_read(write_report("a.json", LOG("1", "\"PARAMETER\"", "\"batch_size\": 8")
                                                       LOG("2", "[0]",
                                                           "\"val.total_ips\": 50, "
                                                           "\"val.compute_latency\": 0.1")),
                            &runs[0]));
        expect_ok(td_run_log_read(
            write_report("b.json", is_alike ? LOG("1", "\"PARAMETER\"", "\"batch_size\": 8")
                                                  LOG("2", "[0]",
                                                      "\"val.total_ips\": 40, "
                                                      "\"val.compute_latency\": 0.2")
                                            : LOG("1", "\"PARAMETER\"", "\"batch_size\": 16")
                                                  LOG("2", "[0]",
                                                      "\"val.total_ips\": 80, "
                                                      "\"val.compute_latency\": 0.2")),
            &runs[1]));
        assert_int_equal(best_of(runs, "latency_ms"), is_alike ? 0 : -1);
        assert_int_equal(best_of(runs, "val_images_per_s"), is_alike ? 0 : 1);
        td_run_log_release(&runs[0]);
        td_run_log_release(&runs[1]);
    }
}

static void losses_of_unlike_targets_have_no_best(void **state)
{
    static const struct {
        const char *settings;
        int best_val, best_train;
    } cases[] = {
        { "\"label_smoothing\": 0.1, \"mixup\": 0", 0, 0 },
        { "\"label_smoothing\": 0.1, \"mixup\": 0.2", -1, -1 }, /* validates without smoothing */
        { "\"label_smoothing\": 0, \"mixup\": 0", -1, -1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_run_log runs[2];
        char other[400];
        (void)snprintf(other, sizeof other,
                       LOG("1", "\"PARAMETER\"", "%s")
                           LOG("2", "[0]", "\"val.loss\": 3, \"train.loss\": 4"),
                       cases[i].settings);
        expect_ok(td_run_log_read(
            write_report("a.json",
                         LOG("1", "\"PARAMETER\"", "\"label_smoothing\": 0.1, \"mixup\": 0")
                             LOG("2", "[0]", "\"val.loss\": 2, \"train.loss\": 1")),
            &runs[0]));
        expect_ok(td_run_log_read(write_report("b.json", other), &runs[1]));
        assert_int_equal(best_of(runs, "val_loss"), cases[i].best_val);
        assert_int_equal(best_of(runs, "train_loss"), cases[i].best_train);
        td_run_log_release(&runs[0]);
        td_run_log_release(&runs[1]);
    }
}

static void pages_are_whole_and_quiet(void **state)
{
    td_run_log runs[2];
    td_text page = { 0 };
    (void)state;
    expect_ok(td_run_log_read(write_report("a.json", sample), &runs[0]));
    expect_ok(td_run_log_read(write_report("b.json", GOOD LOG("2", "\"PARAMETER\"", "\"lr\": 0.3")),
                              &runs[1]));
    for (int n = 1; n <= 2; n++) {
        expect_ok(td_run_page(runs, n, "a <title> & \"more\"", NULL, &page));
        const char *html = td_text_get(&page);
        expect_balanced(html);
        assert_null(strstr(html, "<script"));
        assert_null(strstr(html, "alert('"));
        assert_null(strstr(html, "http:"));
        assert_null(strstr(html, "https:"));
        assert_null(strstr(html, "src="));
        assert_null(strstr(html, "nan"));
        assert_null(strchr(html, '\a'));
        assert_non_null(strstr(html, "&lt;script&gt;alert(&#39;1&#39;)"));
        assert_non_null(strstr(html, "<h1>a &lt;title&gt; &amp; &quot;more&quot;</h1>"));
        assert_non_null(strstr(html, "default-src 'none'"));
        /* loss, top1, top5, lr, scale, rate */
        assert_int_equal(count(html, "class=\"chart\""), 6);
        assert_int_equal(count(html, "role=\"img\""), 6);
        assert_int_equal(count(html, "<desc"), 6);
        assert_non_null(strstr(html, "logarithmic scale")); /* of the loss */
        assert_non_null(strstr(html, "Top-5 accuracy"));
        assert_int_equal(count(html, "What differs"), n == 2);
        assert_int_equal(count(html, "class=\"diff\"") > 0, n == 2);
        assert_int_equal(count(html, "class=\"best\"") > 0, n == 2);
        td_text_release(&page);
    }
    td_run_log_release(&runs[0]);
    td_run_log_release(&runs[1]);
}

static const char *const of_classes =
    LOG("1", "[0]", "\"val.AP\": 0.3, \"val.AP.cat\": 0.5, \"val.AP.a <dog>\": 0.125")
        LOG("2", "[1]", "\"val.AP\": 0.3, \"val.AP.cat\": 0.25, \"val.AP.late\": 0.0625");

static td_status show_classes(void)
{
    td_run_log run;
    td_text page = { 0 };
    td_status st = td_run_log_parse(of_classes, strlen(of_classes), "a", &run);
    if (st == TD_OK)
        st = td_run_classes_html(&run, 1, &page);
    if (st == TD_OK)
        st = td_text_status(&page);
    td_text_release(&page);
    td_run_log_release(&run);
    return st;
}

/* Of detectors: a row a class, last and best; a curve a class where there are few of one run. */
static void classes_have_their_ap(void **state)
{
    (void)state;
    td_run_log runs[2];
    for (int i = 0; i < 2; i++)
        expect_ok(td_run_log_parse(of_classes, strlen(of_classes), "a", &runs[i]));
    for (int n = 1; n <= 2; n++) {
        td_text page = { 0 };
        expect_ok(td_run_classes_html(runs, n, &page));
        expect_balanced(td_text_get(&page));
        assert_int_equal(count(td_text_get(&page), "<polyline"), n == 1 ? 1 : 0);
        assert_int_equal(count(td_text_get(&page), "<tr><th scope=\"row\">"), 3);
        assert_int_equal(count(td_text_get(&page), "cat</th><td>0.2500</td><td>0.5000</td>"), 1);
        assert_int_equal(count(td_text_get(&page), "a &lt;dog&gt;</th><td>0.1250</td>"), 1);
        assert_int_equal(count(td_text_get(&page), "late</th><td>0.0625</td>"), 1);
        td_text_release(&page);
    }
    td_run_log_release(&runs[1]);
    assert_true(td_test_allocations(show_classes, 2000) > 20);
    td_text none = { 0 };
    expect_ok(td_run_log_parse(sample, strlen(sample), "b", &runs[1]));
    expect_ok(td_run_classes_html(&runs[1], 1, &none));
    assert_int_equal(none.len, 0);
    td_run_log_release(&runs[0]);
    td_run_log_release(&runs[1]);
}

static void threads_left_open_are_not_told(void **state)
{
    static const struct {
        const char *settings, *cell;
    } rows[] = { { "\"threads\": 0", "" },
                 { "\"threads\": 3", "3" },
                 { "\"threads\": 0, \"run.threads\": 2", "2" } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_run_log run;
        td_text text = { 0 }, cell = { 0 };
        int row = 0;
        while (strcmp(td_run_table_name(row), "threads") != 0)
            row++;
        td_text_add(&text, LOG("1", "\"PARAMETER\"", "%s") LOG("2", "[0]", "\"train.loss\": 1"),
                    rows[i].settings);
        expect_ok(td_run_log_parse(td_text_get(&text), text.len, "a", &run));
        td_run_table_cell(&run, row, &cell);
        assert_string_equal(td_text_get(&cell), rows[i].cell);
        td_text_release(&text);
        td_text_release(&cell);
        td_run_log_release(&run);
    }
}

static void tables_have_their_forms(void **state)
{
    td_run_log runs[2];
    td_text t = { 0 };
    (void)state;
    expect_ok(td_run_log_read(write_report("a,b|.json", sample), &runs[0]));
    expect_ok(td_run_log_read(write_report("b.json", GOOD), &runs[1]));
    expect_ok(td_run_table(runs, 2, TD_RUN_CSV, &t));
    assert_int_equal(count(td_text_get(&t), "\n"), 3);
    assert_true(td_text_starts(td_text_get(&t), "run,arch,precision,batch_size,"));
    assert_non_null(
        strstr(td_text_get(&t), "a,b|.json\",\"<script>alert('1')</script>&\"\" \",,8,"));
    td_text_release(&t);
    expect_ok(td_run_table(runs, 2, TD_RUN_MARKDOWN, &t));
    assert_null(strstr(td_text_get(&t), "b|.json"));
    assert_non_null(strstr(td_text_get(&t), "| best top5, %"));
    for (const char *row = td_text_get(&t), *end; (end = strchr(row, '\n')) != NULL;
         row = end + 1) {
        int bars = 0;
        for (const char *p = row; p < end; p++)
            bars += *p == '|';
        assert_int_equal(bars, 4);
    }
    td_text_release(&t);
    expect_ok(td_run_table(runs, 2, TD_RUN_TEXT, &t));
    assert_true(td_text_glob("*best top1, %*30.00*least validation loss*2.0000*"
                             "least training loss*1.2000*1.0000*",
                             td_text_get(&t)));
    td_text_release(&t);
    td_run_log_release(&runs[0]);
    td_run_log_release(&runs[1]);
}

static void charts_bear_any_numbers(void **state)
{
    double x[] = { 1, 2, 3 },
           cases[][3] = { { 0, 0, 0 }, { -1e300, 0, 1e300 }, { 1e-300, 1, 1e300 },
                          { 5, 5, 5 }, { 1e-9, 2e-9, 3e-9 }, { 31, 32, 1 } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_text t = { 0 };
        const td_chart_line line = { .name = "a", .x = x, .y = cases[i], .n = 3 };
        const td_chart c = {
            .id = "c", .title = "t", .unit = "", .lines = &line, .n = 1, .may_be_log = i % 2
        };
        td_chart_add(&c, &t);
        expect_ok(td_text_status(&t));
        expect_balanced(td_text_get(&t));
        assert_null(strstr(td_text_get(&t), "nan"));
        assert_null(strstr(td_text_get(&t), "inf"));
        td_text_release(&t);
    }
}

static const char *failing_path;

static td_status read_and_write(void)
{
    td_run_log runs[2] = { 0 };
    td_text t = { 0 };
    td_status st = td_run_log_read(failing_path, &runs[0]);
    if (st == TD_OK)
        st = td_run_log_read(failing_path, &runs[1]);
    if (st == TD_OK)
        st = td_run_page(runs, 2, "t", NULL, &t);
    if (st == TD_OK)
        st = td_run_table(runs, 2, TD_RUN_TEXT, &t);
    if (st == TD_OK)
        assert_int_equal(count(td_text_get(&t), "class=\"chart\""), 6);
    td_text_release(&t);
    td_run_log_release(&runs[0]);
    td_run_log_release(&runs[1]);
    return st;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    failing_path = write_report("failing.json", sample);
    assert_true(td_test_allocations(read_and_write, 20000) > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_counts_once),
        cmocka_unit_test(bad_reports_are_told),
        cmocka_unit_test(a_cut_last_line_is_left_out),
        cmocka_unit_test(times_of_unlike_batches_have_no_best),
        cmocka_unit_test(losses_of_unlike_targets_have_no_best),
        cmocka_unit_test(pages_are_whole_and_quiet),
        cmocka_unit_test(classes_have_their_ap),
        cmocka_unit_test(threads_left_open_are_not_told),
        cmocka_unit_test(tables_have_their_forms),
        cmocka_unit_test(charts_bear_any_numbers),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
