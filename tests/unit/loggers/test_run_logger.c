/*
 * test_run_logger.c -- records as JSON, lines and tables; what values add up to; times without
 * logging
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/stats.h"
#include "evaluation/report_sums.h"
#include "loggers/report_metrics.h"
#include "loggers/run_logger.h"
#include "report/run_log.h"
#include "tandem/graph.h"
#include "tandem/train.h"

/* --- clocks that the test sets ---------------------------------------------------------------- */

static time_t set_by_s;          /* what the wall clock was moved by */
static _Atomic int64_t passed_s; /* time that has passed besides */

/* in the C library's place: this program and the library under test call it */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    const long code = syscall(SYS_clock_gettime, clock, t);
    if (code == 0 && clock == CLOCK_REALTIME)
        t->tv_sec += set_by_s;
    if (code == 0)
        t->tv_sec += passed_s;
    return (int)code;
}

/* --- lines of text ---------------------------------------------------------------------------- */

static td_text lines;
static int line_takes_s;

static void keep_line(void *ctx, td_log_level level, const char *module, const char *text)
{
    (void)ctx;
    (void)level;
    td_text_add(&lines, "%s%s%s\n", module ? module : "", module ? ": " : "", text);
    passed_s += line_takes_s;
}

static bool is_said(const char *line)
{
    char pattern[1000];
    snprintf(pattern, sizeof pattern, "*%s\n*", line);
    return td_text_glob(pattern, td_text_get(&lines));
}

static void listen(void)
{
    td_text_release(&lines);
    td_log_set_sink(keep_line, NULL);
}

#define WHEN "DLL 20*-*-* *:*:*.* - "

static void lines_are_the_references(void **state)
{
    td_report *r;
    const td_run_logger_opts o = { .to_log = true, .topk = 3 };
    const int64_t step[] = { 2, 40, 7 };
    (void)state;
    listen();
    expect_ok(td_report_open(&o, &r));
    expect_ok(td_report_parameters(
        r, "{\"batch_size\": 256, \"lr\": 0.1, \"arch\": \"a b\", \"amp\": true, \"x\": null}"));
    td_report_begin(r, 2, step);
    td_report_add(r, "train.loss", 1.234564);
    td_report_add(r, "train.compute_ips", 100.126);
    td_report_add(r, "train.data_time", 0.5);
    td_report_add(r, "train.lr", 0.1);
    td_report_add(r, "train.grad_scale", 65536);
    expect_ok(td_report_end(r));
    td_report_begin(r, 3, step);
    td_report_add(r, "val.top1", 12.346);
    td_report_add(r, "val.top3", (double)NAN);
    td_report_add(r, "val.compute_latency_at95", 1);
    expect_ok(td_report_end(r));
    td_report_begin(r, 1, step);
    td_report_add(r, "val.compute_latency", 0.25);
    td_report_add(r, "val.compute_latency_at95", 0.5);
    expect_ok(td_report_end(r));
    td_report_begin(r, 0, NULL);
    td_report_add(r, "train.loss", 3);
    expect_ok(td_report_end(r));
    td_report_log(r, "SAVING %s", "a/b");
    expect_ok(td_report_close(r));
    td_log_set_sink(NULL, NULL);
    assert_true(
        is_said(WHEN "PARAMETER batch_size : 256  lr : 0.1  arch : a b  amp : True  x : None "));
    assert_true(is_said(WHEN
                        "Epoch: 2 Iteration: 40  train.loss : 1.23456 None train.compute_ips : "
                        "100.13 images/s train.lr : 0.1  train.grad_scale : 65536.0 None"));
    assert_true(is_said(WHEN "Epoch: 2 Iteration: 40  Validation Iteration: 7  val.top1 : 12.35 % "
                             "val.top3 : None %"));
    assert_true(is_said(WHEN "Epoch: 2  val.compute_latency : 0.25000 s\n" WHEN
                             "Epoch: 2  val.compute_latency_at95 : 0.50000 s"));
    assert_true(is_said(WHEN "Summary: train.loss : 3.00000 None\nSAVING a/b"));
}

static void numbers_are_pythons(void **state)
{
    static const struct {
        double x;
        const char *text;
    } cases[] = { { 0.1, "0.1" },    { 0.0025000000000000014, "0.0025000000000000014" },
                  { 1, "1.0" },      { 65536, "65536.0" },
                  { 1e-5, "1e-05" }, { -2.5, "-2.5" },
                  { 0, "0.0" },      { 0.256, "0.256" } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_text t = { 0 };
        td_metric_add_real(&t, cases[i].x);
        assert_string_equal(td_text_get(&t), cases[i].text);
        td_text_release(&t);
    }
}

static void metrics_have_names_for_any_k(void **state)
{
    (void)state;
    assert_string_equal(td_metric_find("train.loss")->unit, TD_UNIT_NULL);
    assert_null(td_metric_find("train.lr")->unit);
    assert_string_equal(td_metric_find("val.top17")->unit, "%");
    assert_string_equal(td_metric_find("val_ema.top5")->unit, "%");
    assert_string_equal(td_metric_find("top3_accuracy")->name, "top5_accuracy");
    assert_int_equal(td_metric_find("val.compute_latency_at99")->level, 1);
    assert_int_equal(td_metric_find("val.compute_latency")->level, 0);
    assert_null(td_metric_find("val.topmost"));
    assert_null(td_metric_find("train.top1"));
    assert_null(td_metric_find("val_ema.lr"));
}

/* --- sums ------------------------------------------------------------------------------------- */

static void rates_are_images_over_seconds(void **state)
{
    td_step_sums s = { 0 };
    (void)state;
    td_step_sums_add(&s, &(td_step_metadata){ 1, 1, 10, 1, 1, { 0 } }); /* 5 and 10 images/s */
    td_step_sums_add(&s, &(td_step_metadata){ (double)NAN, 1, 10, 0, 4, { 0 } }); /* skipped; 2.5 */
    td_step_sums_add(&s, &(td_step_metadata){ 4, 1, 10, 0, 5, { 0 } });           /* 2 */
    assert_float_equal(td_step_sums_loss(&s), 2.5, 1e-12);
    assert_float_equal(td_step_sums_rate(&s, false), 30.0 / 11, 1e-12);
    assert_float_equal(td_step_sums_rate(&s, true), (5 + 2.5 + 2) / 3, 1e-12);
}

static td_eval_result eval_result(int n, int n_top1, double loss_sum, double *latency,
                                  int n_batches)
{
    td_eval_result v = { .counts = { .n = n, .n_top1 = n_top1, .n_topk = n, .loss_sum = loss_sum },
                         .n_batches = n_batches,
                         .latency = latency };
    for (int i = 0; i < n_batches; i++) {
        v.compute_s += latency[i];
        v.compute_rates += (double)n / n_batches / latency[i];
    }
    v.total_rates = v.compute_rates;
    return v;
}

static const double best_boxes[TD_BOX_METRICS] = { 0.5, 0.625 }; /* an earlier run's */

/* the value of a metric at the end of a run of two validations, after one with the best score
   `before`, percent (-1: none) */
static double value_of(const td_eval_result *a, const td_eval_result *b, double before,
                       bool is_compat, const char *metric)
{
    const char *path = td_scratch_path("sums.json");
    const td_run_logger_opts o = { .path = path,
                                   .is_compat = is_compat,
                                   .detects = a->detects,
                                   .is_multi_label = a->is_multi_label };
    td_val_sums s = { 0 };
    td_report *r;
    td_run_log run;
    expect_ok(td_report_open(&o, &r));
    expect_ok(td_val_sums_add(&s, a, is_compat));
    expect_ok(td_val_sums_add(&s, b, is_compat));
    td_val_sums_raise(&s, before, best_boxes);
    td_report_begin(r, 0, NULL);
    expect_ok(td_val_sums_report(&s, "val", 5, r));
    expect_ok(td_report_end(r));
    expect_ok(td_report_close(r));
    td_val_sums_release(&s);
    expect_ok(td_run_log_read(path, &run));
    const td_run_series *series = td_run_log_series(&run, TD_RUN_END, metric);
    const double x = series ? series->points[0].value : -1;
    td_run_log_release(&run);
    return x;
}

static double end_value(bool is_compat, const char *metric)
{
    double first[] = { 0.4, 0.1 }, second[] = { 0.3, 0.2 };
    const td_eval_result a = eval_result(10, 6, 20, first, 2);
    const td_eval_result b = eval_result(10, 4, 30, second, 2);
    const double x = value_of(&a, &b, -1, is_compat, metric);
    assert_true(x >= 0);
    return x;
}

/* what the best weights are chosen by is the largest, also of validations before a resume */
static void best_scores_survive_a_resume(void **state)
{
    (void)state;
    double first[] = { 0.4 }, second[] = { 0.3 };
    td_eval_result a = eval_result(10, 6, 20, first, 1), b = eval_result(10, 4, 30, second, 1);
    assert_float_equal(value_of(&a, &b, -1, false, "val.top1"), 60, 1e-6);
    assert_float_equal(value_of(&a, &b, 55, false, "val.top1"), 60, 1e-6);
    assert_float_equal(value_of(&a, &b, 70, false, "val.top1"), 70, 1e-6);
    a.is_multi_label = b.is_multi_label = true;
    a.multi = (td_multi_scores){ .map = 0.5, .micro_f1 = 0.25, .macro_f1 = 0.5 };
    b.multi = (td_multi_scores){ .map = 0.25, .micro_f1 = 0.75, .macro_f1 = 0.25 };
    assert_float_equal(value_of(&a, &b, -1, false, "val.mAP"), 0.5, 1e-6);
    assert_float_equal(value_of(&a, &b, 70, false, "val.mAP"), 0.7, 1e-6);
    assert_float_equal(value_of(&a, &b, 70, false, "val.micro_f1"), 0.75, 1e-6);
    assert_float_equal(value_of(&a, &b, 70, false, "val.macro_f1"), 0.5, 1e-6);
    assert_true(value_of(&a, &b, 70, false, "val.top1") < 0);
    td_eval_result c = a, d = b;
    c.is_multi_label = d.is_multi_label = false;
    c.detects = d.detects = true;
    c.boxes[TD_BOX_AP] = 0.25;
    c.boxes[TD_BOX_AP50] = 0.75;
    assert_float_equal(value_of(&c, &d, -1, false, "val.AP"), 0.25, 1e-6);
    assert_float_equal(value_of(&c, &d, 0.5, false, "val.AP"), 0.5, 1e-6);
    assert_float_equal(value_of(&c, &d, 0.5, false, "val.AP50"), 0.625, 1e-6);
    d.boxes[TD_BOX_AP] = 0.75;
    assert_float_equal(value_of(&c, &d, 0.5, false, "val.AP"), 0.75, 1e-6);
    assert_float_equal(value_of(&c, &d, 0.5, false, "val.AP50"), 0, 1e-6);
    b.counts.n_nonfinite = 1; /* never the best */
    b.multi.map = 0.9;
    assert_float_equal(value_of(&a, &b, -1, false, "val.mAP"), 0.5, 1e-6);
}

static void runs_have_the_most_and_the_least(void **state)
{
    (void)state;
    assert_float_equal(end_value(false, "val.top1"), 60, 1e-6);
    assert_float_equal(end_value(false, "val.loss"), 2, 1e-6);
    assert_float_equal(end_value(true, "val.loss"), 3, 1e-6); /* the reference's "min" */
    assert_float_equal(end_value(false, "val.compute_latency"), 0.25, 1e-6);
    assert_float_equal(end_value(false, "val.compute_ips"), 20, 1e-6);
    assert_float_equal(end_value(true, "val.compute_ips"),
                       (5 / 0.4 + 5 / 0.1 + 5 / 0.3 + 5 / 0.2) / 4, 1e-6);
    /* nearest rank, over all epochs */
    assert_float_equal(end_value(false, "val.compute_latency_at50"), 0.2, 1e-6);
    assert_float_equal(end_value(false, "val.compute_latency_at90"), 0.4, 1e-6);
    assert_float_equal(end_value(false, "val.compute_latency_at100"), 0.4, 1e-6);
}

static void quantiles_are_as_numpys(void **state)
{
    double x[] = { 4, 1, 3, 2 }, one[] = { 7 };
    (void)state;
    assert_float_equal(td_quantile_linear(x, 4, 0.9), 3.7, 1e-12);
    assert_float_equal(td_quantile_linear(x, 4, 0.5), 2.5, 1e-12);
    assert_float_equal(td_quantile_linear(x, 4, 1), 4, 0);
    assert_float_equal(td_quantile_linear(one, 1, 0.95), 7, 0);
    assert_float_equal(td_quantile(x, 4, 0.95), 4, 0);
    assert_float_equal(td_quantile(x, 4, 0.5), 2, 0);
    assert_float_equal(td_median(x, 4), 2.5, 0);
    assert_float_equal(td_median(x, 3), 2, 0);
    assert_float_equal(td_median(one, 1), 7, 0);
    assert_float_equal(td_median(one, 0), 0, 0);
}

/* --- tables ----------------------------------------------------------------------------------- */

static td_status write_table(const char *path, bool is_continued, int from, int to, int topk)
{
    td_report *r;
    td_status st = TD_OK;
    const td_run_logger_opts o = {
        .csv = path, .is_continued = is_continued, .at = { from, 0 }, .topk = topk
    };
    TD_TRY(td_report_open(&o, &r));
    for (int64_t e = from; e < to && st == TD_OK; e++) {
        td_report_begin(r, 1, &e);
        td_report_add(r, "train.loss", 10 + (double)e);
        td_report_add(r, "val.top1", (double)NAN);
        td_report_add(r, "cross_entropy", 1); /* has no column */
        st = td_report_end(r);
    }
    const td_status closed = td_report_close(r);
    return st != TD_OK ? st : closed;
}

/* first column of every row, and the second */
static void expect_rows(const char *path, const char *wanted)
{
    char *text;
    size_t n;
    td_text found = { 0 };
    expect_ok(td_file_read(path, 1 << 20, &text, &n));
    for (char *row = text, *end; (end = strchr(row, '\n')) != NULL; row = end + 1) {
        const size_t first = strcspn(row, ","), second = strcspn(row + first + 1, ",");
        td_text_add(&found, "%.*s ", (int)(first + 1 + second), row);
    }
    assert_string_equal(td_text_get(&found), wanted);
    td_text_release(&found);
    td_free(text);
}

static void tables_go_on_where_the_run_does(void **state)
{
    const char *path = td_scratch_path("epochs.csv");
    (void)state;
    expect_ok(write_table(path, false, 0, 4, 5));
    expect_rows(path, "epoch,train.loss 0,10 1,11 2,12 3,13 ");
    expect_ok(write_table(path, true, 2, 3, 5)); /* epoch 2 again: not twice */
    expect_rows(path, "epoch,train.loss 0,10 1,11 2,12 ");
    FILE *f = fopen(path, "a");
    fputs("3,1", f); /* half a row, as kill -9 leaves it */
    fclose(f);
    expect_ok(write_table(path, true, 3, 5, 5));
    expect_rows(path, "epoch,train.loss 0,10 1,11 2,12 3,13 4,14 ");
    expect_error(write_table(path, true, 5, 6, 3), TD_EFORMAT, "different columns from this");
    expect_rows(path, "epoch,train.loss 0,10 1,11 2,12 3,13 4,14 ");
    expect_ok(write_table(path, false, 0, 1, 3));
    expect_rows(path, "epoch,train.loss 0,10 ");
    expect_error(write_table(td_scratch_path("absent/x.csv"), false, 0, 1, 5), TD_EIO,
                 "absent/x.csv");
}

/* the value of a member of the last record */
static double last_number(const char *path, const char *member)
{
    char *text, *at, key[64];
    size_t n;
    double value;
    snprintf(key, sizeof key, "\"%s\": \"", member);
    expect_ok(td_file_read(path, 1 << 20, &text, &n));
    for (at = text; strstr(at, key); at = strstr(at, key) + strlen(key))
        ;
    assert_ptr_not_equal(at, text);
    value = strtod(at, NULL);
    td_free(text);
    return value;
}

static void durations_do_not_follow_the_wall_clock(void **state)
{
    (void)state;
    char path[4096];
    td_report *r;
    snprintf(path, sizeof path, "%s", td_scratch_path("clock.json"));
    expect_ok(td_report_open(&(td_run_logger_opts){ .path = path }, &r));
    const double begin_s = td_wall_s();
    set_by_s = -7200; /* two hours back, as at the end of summer */
    td_report_begin(r, 0, NULL);
    expect_ok(td_report_end(r));
    expect_ok(td_report_close(r));
    const double elapsed_s = last_number(path, "elapsedtime");
    const double stamp_s = last_number(path, "timestamp");
    set_by_s = 0;
    assert_true(elapsed_s >= 0);
    assert_true(stamp_s < begin_s - 6600); /* the time of day is what the clock says */
}

static td_status write_everything(void)
{
    td_report *r;
    char json[4096], csv[4096], folder[4096];
    snprintf(json, sizeof json, "%s", td_scratch_path("f.json"));
    snprintf(csv, sizeof csv, "%s", td_scratch_path("f.csv"));
    snprintf(folder, sizeof folder, "%s", td_scratch_path("f.events"));
    const td_run_logger_opts o = { .path = json,
                                   .to_log = true,
                                   .csv = csv,
                                   .tensorboard = folder,
                                   .is_continued = true,
                                   .has_tf_names = true };
    const int64_t epoch = 0;
    TD_TRY(td_report_open(&o, &r));
    td_status st = td_report_parameters(r, "{\"a\": 1, \"b\": \"x\"}");
    td_report_begin(r, 1, &epoch);
    td_report_add(r, "train.loss", 1);
    if (st == TD_OK)
        st = td_report_end(r);
    const td_status closed = td_report_close(r);
    return st != TD_OK ? st : closed;
}

static void hear_nothing(void *ctx, td_log_level level, const char *module, const char *text)
{
    (void)ctx;
    (void)level;
    (void)module;
    (void)text;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    td_log_set_sink(hear_nothing, NULL);
    assert_true(td_test_allocations(write_everything, 2000) > 10);
    td_log_set_sink(NULL, NULL);
}

/* --- times ------------------------------------------------------------------------------------ */

enum { N_STEPS = 4, LINE_S = 10000 };

typedef struct {
    double least_data_s, most_data_s, most_compute_s; /* of the steps but the first */
    double val_data_s;                                /* the mean of the batches */
} times;

static double extreme(const td_run_log *run, const char *metric, double (*choose)(double, double))
{
    const td_run_series *s = td_run_log_series(run, TD_RUN_ITERATIONS, metric);
    assert_non_null(s);
    assert_int_equal(s->n, N_STEPS);
    double x = s->points[1].value;
    for (size_t i = 2; i < s->n; i++)
        x = choose(x, s->points[i].value);
    return x;
}

/* train with a log that takes so long for every line */
static times train_with(int line_s, bool is_compat)
{
    td_train_opts o;
    td_train_result result;
    td_run_log run;
    td_train_defaults(&o);
    o.model.arch = "resnet18";
    o.model.image_size = 32;
    o.model.num_classes = 4;
    o.input.data_backend = TD_DATA_SYNTHETIC;
    o.batch.size = 2;
    o.length.epochs = 1;
    o.profile.iterations = N_STEPS;
    o.metrics.print_freq = 1;
    o.device.threads = 1;
    o.input.workers = 1;
    o.batch.seed = 1;
    o.output.save_checkpoints = false;
    o.report.file = "experiment_raport.json";
    o.report.log_format = TD_LOG_FORMAT_DLL;
    o.report.is_compat = is_compat;
    o.output.workspace = td_scratch_path("timed");
    listen();
    line_takes_s = line_s;
    expect_ok(td_train(&o, &result));
    td_text_free(result.profile);
    line_takes_s = 0;
    td_log_set_sink(NULL, NULL);
    expect_ok(td_run_log_read(o.output.workspace, &run));
    const td_run_series *v = td_run_log_series(&run, TD_RUN_EPOCHS, "val.data_time");
    assert_non_null(v);
    const times t = { extreme(&run, "train.data_time", fmin),
                      extreme(&run, "train.data_time", fmax),
                      extreme(&run, "train.compute_time", fmax), v->points[0].value };
    td_run_log_release(&run);
    return t;
}

/* a line takes hours by the test's clock, so that real times do not matter beside it */
static void writing_is_in_no_time(void **state)
{
    (void)state;
    const times t = train_with(LINE_S, false);
    assert_true(t.most_data_s < LINE_S);
    assert_true(t.most_compute_s < LINE_S);
    assert_true(t.val_data_s < LINE_S);
    const times compat = train_with(LINE_S, true); /* the reference's wait contains them */
    assert_true(compat.least_data_s >= LINE_S);
    assert_true(compat.val_data_s >= 0.6 * LINE_S); /* all but the first batch */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_the_references),
        cmocka_unit_test(numbers_are_pythons),
        cmocka_unit_test(metrics_have_names_for_any_k),
        cmocka_unit_test(rates_are_images_over_seconds),
        cmocka_unit_test(runs_have_the_most_and_the_least),
        cmocka_unit_test(best_scores_survive_a_resume),
        cmocka_unit_test(quantiles_are_as_numpys),
        cmocka_unit_test(tables_go_on_where_the_run_does),
        cmocka_unit_test(durations_do_not_follow_the_wall_clock),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(writing_is_in_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
