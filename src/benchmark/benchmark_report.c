/*
 * benchmark_report.c -- writes a benchmark's report file
 */
#include "benchmark/benchmark_report.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/stats.h"
#include "benchmark/benchmark.h"
#include "boxes/anchors.h"
#include "evaluation/evaluator.h"
#include "loggers/report_settings.h"
#include "options/field.h"

#define DEFAULT_NAME "benchmark.json"

enum { WINDOW, ALL };

/* --- begin ------------------------------------------------------------------------------------ */

static td_status name_file(const td_benchmark_opts *o, char **out)
{
    *out = NULL;
    if (!o->report.file && !o->workspace)
        return TD_OK;
    if (o->workspace)
        TD_TRY(td_make_folder(o->workspace));
    *out = td_path_join(o->workspace ? o->workspace : "",
                        o->report.file ? o->report.file : DEFAULT_NAME);
    return *out ? TD_OK : TD_ENOMEM;
}

/* Check that the report does not overwrite an input or another result. */
static td_status check_path(const td_benchmark_opts *o, const char *path)
{
    const struct {
        const char *what, *path;
    } others[] = { { "the weights", o->weights },
                   { "the network", o->model.model },
                   { "the data", o->input.data },
                   { "the annotations", o->input.annotations },
                   { "the trace", o->trace } };
    for (size_t i = 0; path && i < sizeof others / sizeof *others; i++)
        if (others[i].path && td_path_is_same(path, others[i].path))
            return td_error(TD_EUSAGE, "'%s' is used for both the report and %s", path,
                            others[i].what);
    return TD_OK;
}

static td_status write_settings(const td_benchmark_report *r, const td_benchmark_metadata *metadata)
{
    td_benchmark_opts copy = *r->o;
    td_text config = { 0 };
    const td_field_group groups[] = { { "Network", td_model_fields(), &copy.model },
                                      { "Data", td_input_fields(), &copy.input },
                                      { "Precision", td_amp_fields(), &copy.amp },
                                      { "Measurement", td_benchmark_fields(), &copy },
                                      { NULL, NULL, NULL } };
    const td_run_metadata run = { .job = "benchmark",
                                  .amp = &copy.amp,
                                  .program = metadata->program,
                                  .ranks = metadata->ranks,
                                  .train_images = r->is_training ? metadata->n_images : 0,
                                  .val_images = r->is_training ? 0 : metadata->n_images };
    td_status st = td_settings_json(groups, &config);
    if (st == TD_OK)
        st = td_report_settings(r->report, td_text_get(&config), &r->o->model, &run);
    td_text_release(&config);
    return st;
}

td_status td_benchmark_report_open(const td_benchmark_opts *o,
                                   const td_benchmark_metadata *metadata, td_benchmark_report *out)
{
    *out = (td_benchmark_report){ .o = o,
                                  .is_training = o->mode == TD_BENCHMARK_TRAINING,
                                  .detector = td_model_detector(&o->model),
                                  .batch = (double)o->batch_size * metadata->ranks,
                                  .lr = metadata->lr,
                                  .scale = metadata->scale };
    TD_TRY(name_file(o, &out->path));
    TD_TRY(check_path(o, out->path));
    const td_run_logger_opts ro = { .path = out->path,
                                    .to_log = o->report.log_format == TD_LOG_FORMAT_DLL,
                                    .is_compat = o->report.is_compat,
                                    .has_tf_names = o->report.naming == TD_REPORT_NAMING_TF,
                                    .detects = out->detector != TD_DETECTOR_NONE,
                                    .is_benchmark = true };
    TD_TRY(td_report_open(&ro, &out->report));
    out->compute_s = td_alloc((size_t)o->iters, sizeof *out->compute_s);
    return out->compute_s ? write_settings(out, metadata) : TD_ENOMEM;
}

/* --- iterations ------------------------------------------------------------------------------- */

static void add_pass(td_eval_result *v, double images, double seconds, double wait_s)
{
    v->counts.n += (int64_t)images;
    v->n_batches++;
    v->data_s += wait_s;
    v->compute_s += seconds - wait_s;
    v->compute_rates += images / (seconds - wait_s);
    v->total_rates += images / seconds;
}

/* Images/s since the last record or in total, including the wait for data. */
static double rate(const td_benchmark_report *r, int which)
{
    const td_eval_result *v = &r->passes[which];
    if (r->is_training)
        return td_step_sums_rate(&r->steps[which], r->o->report.is_compat);
    return r->o->report.is_compat ? v->total_rates / (double)v->n_batches
                                  : (double)v->counts.n / (v->data_s + v->compute_s);
}

static td_status add_sums(td_benchmark_report *r, int which, int last)
{
    if (r->is_training) {
        td_step_sums_report(&r->steps[which], td_step_sums_loss(&r->steps[which]), r->lr,
                            r->report);
        return TD_OK;
    }
    td_eval_result *v = &r->passes[which];
    v->latency = r->compute_s + last - v->n_batches;
    TD_TRY(td_eval_result_quantiles(v));
    td_eval_result_report_times(v, "val", r->report);
    return TD_OK;
}

static td_status report_window(td_benchmark_report *r, int i)
{
    const int64_t step[] = { 0, r->is_training ? i + 1 : 0, i + 1 };
    td_report_begin(r->report, r->is_training ? 2 : 3, step);
    TD_TRY(add_sums(r, WINDOW, i + 1));
    if (td_report_has_tf_names(r->report))
        td_report_add(r->report, "total_ips", rate(r, WINDOW));
    r->steps[WINDOW] = (td_step_sums){ 0 };
    r->passes[WINDOW] = (td_eval_result){ 0 };
    return td_report_end(r->report);
}

td_status td_benchmark_report_step(td_benchmark_report *r, int i, double seconds, double wait_s,
                                   double loss)
{
    const td_step_metadata f = { .loss = loss,
                                 .scale = r->scale,
                                 .n_images = r->batch,
                                 .data_s = wait_s,
                                 .compute_s = seconds - wait_s,
                                 .parts = { (double)NAN, (double)NAN, (double)NAN } };
    if (!r->report)
        return TD_OK;
    r->compute_s[i] = f.compute_s;
    for (int k = WINDOW; k <= ALL; k++)
        if (r->is_training)
            td_step_sums_add(&r->steps[k], &f);
        else
            add_pass(&r->passes[k], r->batch, seconds, wait_s);
    return (i + 1) % r->o->print_freq == 0 ? report_window(r, i) : TD_OK;
}

/* --- end -------------------------------------------------------------------------------------- */

/* Add the results as SSD300's program logs them; sorted [n]. */
static void add_ssd300(const td_benchmark_report *r, double *sorted, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += r->batch / sorted[i];
    td_report_add(r->report, "avg_img/sec", sum / n);
    td_report_add(r->report, "med_img/sec", r->batch / td_median(sorted, n));
    td_report_add(r->report, "min_img/sec", r->batch / sorted[n - 1]);
    td_report_add(r->report, "max_img/sec", r->batch / sorted[0]);
}

/* Add the results as SSD320's inference program logs them. */
static void add_ssd320_inference(const td_benchmark_report *r, double *sorted, int n)
{
    double sum = 0, rates = 0;
    for (int i = 0; i < n; i++) {
        sum += sorted[i];
        rates += r->batch / sorted[i];
    }
    td_report_add(r->report, "infer_throughput", rates / n);
    td_report_add(r->report, "eval_avg_latency", sum / n * 1e3);
    td_report_add(r->report, "eval_90%_latency", td_quantile(sorted, n, 0.9) * 1e3);
    td_report_add(r->report, "eval_95%_latency", td_quantile(sorted, n, 0.95) * 1e3);
    td_report_add(r->report, "eval_99%_latency", td_quantile(sorted, n, 0.99) * 1e3);
}

static td_status add_figures(td_benchmark_report *r, const double *seconds)
{
    const int n = r->o->iters;
    double *sorted = td_copy_array(seconds, (size_t)n, sizeof *sorted);
    td_status st = TD_OK;
    if (!sorted)
        return TD_ENOMEM;
    td_median(sorted, n); /* sorts `sorted` */
    if (r->detector == TD_DETECTOR_SSD300)
        add_ssd300(r, sorted, n);
    if (td_report_has_tf_names(r->report) && r->is_training)
        td_report_add(r->report, "train_throughput", rate(r, ALL));
    else if (td_report_has_tf_names(r->report) && r->detector == TD_DETECTOR_SSD320)
        add_ssd320_inference(r, sorted, n);
    else if (td_report_has_tf_names(r->report))
        st = td_tf_times_report(&(td_eval_result){ .counts = r->passes[ALL].counts,
                                                   .n_batches = n,
                                                   .latency = seconds },
                                0, r->report);
    td_free(sorted);
    return st;
}

td_status td_benchmark_report_end(td_benchmark_report *r, const double *seconds)
{
    if (!r->report)
        return TD_OK;
    td_report_begin(r->report, 0, NULL);
    TD_TRY(add_sums(r, ALL, r->o->iters));
    TD_TRY(add_figures(r, seconds));
    TD_TRY(td_report_end(r->report));
    if (r->path)
        td_log(TD_LOG_INFO, "benchmark", "report '%s'", r->path);
    return TD_OK;
}

td_status td_benchmark_report_close(td_benchmark_report *r, td_status st)
{
    const td_status closed = td_report_close(r->report);
    td_free(r->path);
    td_free(r->compute_s);
    *r = (td_benchmark_report){ 0 };
    return st == TD_OK ? closed : st;
}
